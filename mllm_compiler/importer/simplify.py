"""The optional step through onnxsim, which copies the whole model and loses names."""

from __future__ import annotations

import weakref
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mllm_compiler.errors import CompileError
from mllm_compiler.weights import WeightStore


def simplified(file: Path, store: WeightStore) -> Path:
    """The simplified model of an ONNX file, in a folder that lives as long as the store.

    Raises:
        CompileError: onnxsim is not installed, or fails.
    """
    try:
        onnxsim: Any = import_module("onnxsim")
    except ImportError as error:
        raise CompileError(
            "MLC-I030",
            "the package onnxsim is not installed",
            location=str(file),
            remedy="pip install mllm-compiler[simplify], or compile without --simplify",
        ) from error
    import onnx

    try:
        model, proved = onnxsim.simplify(onnx.load(file))
    except Exception as error:
        raise _failed(file, str(error)) from error
    if not proved:
        raise _failed(file, "the simplified model computes something else")
    folder = TemporaryDirectory(prefix="mllm-simplified-")
    weakref.finalize(store, folder.cleanup)
    out = Path(folder.name) / file.name
    onnx.save(model, out, save_as_external_data=True, location=f"{file.stem}.data")
    return out


def _failed(file: Path, message: str) -> CompileError:
    return CompileError(
        "MLC-I030", f"onnxsim: {message}", location=str(file), remedy="compile without --simplify"
    )
