"""Shapes of signal processing operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mllm_compiler.dialects.dims import UNKNOWN, Dim
from mllm_compiler.passes.shape_functions.knowledge import Known, ShapeFunction, Shapes, tensor

if TYPE_CHECKING:
    from mllm_compiler.dialects.onnx_op import OnnxOp


def stft(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """[batch, length, 1 or 2] -> [batch, frames, bins, 2]; half the bins and one if one-sided."""
    signal, step = shapes.of(op.input(0)), shapes.of(op.input(1)).contents
    window, given = shapes.of(op.input(2)), shapes.of(op.input(3)).contents
    if signal.dims is None:
        return [tensor(signal.element, None)]
    taps = given[0] if given else window.dims[0] if window.dims else UNKNOWN
    frames = UNKNOWN
    if step is not None and step[0].as_int() not in (None, 0):
        frames = (signal.dims[1] - taps) // step[0] + 1
    bins = taps // Dim.const(2) + 1 if op.attribute("onesided") else taps
    return [tensor(signal.element, [signal.dims[0], frames, bins, 2])]


FUNCTIONS: Final[dict[str, ShapeFunction]] = {"onnx.STFT": stft}
"""Shape functions by operator."""
