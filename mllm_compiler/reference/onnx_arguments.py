"""The operands of ONNX operators by position, where some may be absent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.reference.executor import Array

Arguments = Sequence[Array | None]
Compute = Callable[[OnnxOp, Arguments], Sequence[Array]]


def need(x: Arguments, position: int) -> Array:
    """An operand that is always there."""
    value = x[position]
    assert value is not None
    return value


def optional(x: Arguments, position: int) -> Array | None:
    """An operand that may be left out."""
    return x[position] if position < len(x) else None
