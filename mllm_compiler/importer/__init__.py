"""Reads ONNX models into the `onnx` dialect; weights stay mapped in their files."""

import logging

from mllm_compiler.importer.dim_specs import DimSpec, read_dims
from mllm_compiler.importer.folder_text import chat_template
from mllm_compiler.importer.model_spec import read_model_spec
from mllm_compiler.importer.model_toml import (
    AudioSpec,
    CacheSpec,
    CrossSpec,
    GenerationSpec,
    GraphSpec,
    ImageSpec,
    ModelSpec,
    TextSpec,
)
from mllm_compiler.importer.pipeline import Imported, import_model

# onnx-ir logs what it finds odd; what matters is told as an error, and nothing goes to stderr.
logging.getLogger("onnx_ir").addHandler(logging.NullHandler())

__all__ = [
    "AudioSpec",
    "CacheSpec",
    "CrossSpec",
    "DimSpec",
    "GenerationSpec",
    "GraphSpec",
    "ImageSpec",
    "Imported",
    "ModelSpec",
    "TextSpec",
    "chat_template",
    "import_model",
    "read_dims",
    "read_model_spec",
]
