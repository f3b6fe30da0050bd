"""Meanings of the `rknn` dialect: each op is the standard's operator, in single precision.

The toolkit rounds to f16, or to codes of 8 bits that it calibrates itself; neither is here.
"""

from __future__ import annotations

from collections.abc import Mapping

from mllm_compiler.dialects.rknn import operators
from mllm_compiler.reference.executor import Meaning
from mllm_compiler.reference.onnx import evaluate

MEANINGS: Mapping[str, Meaning] = {op.name: evaluate for op in operators().values()}
"""The meaning of each op by its name."""
