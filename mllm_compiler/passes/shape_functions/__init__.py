"""Shape functions of `onnx` operators, a file for each family; a table by operator."""

from __future__ import annotations

from typing import Final

from mllm_compiler.passes.shape_functions import (
    attention,
    elementwise,
    filling,
    indexing,
    layout,
    linear,
    signal,
    spatial,
)
from mllm_compiler.passes.shape_functions.knowledge import Known, ShapeFunction, Shapes

FUNCTIONS: Final[dict[str, ShapeFunction]] = {
    **elementwise.FUNCTIONS,
    **layout.FUNCTIONS,
    **filling.FUNCTIONS,
    **indexing.FUNCTIONS,
    **linear.FUNCTIONS,
    **spatial.FUNCTIONS,
    **signal.FUNCTIONS,
    **attention.FUNCTIONS,
}
"""Shape functions by operator name; the standard's own inference serves the others."""

__all__ = ["FUNCTIONS", "Known", "ShapeFunction", "Shapes"]
