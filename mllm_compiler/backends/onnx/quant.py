"""Affine quantisation of the `mllm` dialect as nodes of the standard."""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, f64, i64

from mllm_compiler.backends.onnx.builder import Builder, Value
from mllm_compiler.backends.onnx.entry import Inputs, one
from mllm_compiler.dialects.mllm import DequantizeOp, QuantizeOp, RequantizeOp
from mllm_compiler.dialects.types import dtype_of, element_of, rank_of


def _axis(axis: IntegerAttr | None) -> dict[str, int]:
    return {} if axis is None else {"axis": axis.value.data}


def _quantize(op: QuantizeOp, b: Builder, inputs: Inputs) -> Value:
    return b.node("QuantizeLinear", *inputs, **_axis(op.axis))


def _dequantize(op: DequantizeOp, b: Builder, inputs: Inputs) -> Value:
    return b.node("DequantizeLinear", *inputs, **_axis(op.axis))


def _requantize(op: RequantizeOp, b: Builder, inputs: Inputs) -> Value:
    """Rounds in double precision and clamps to the range of the result."""
    x, multiplier, zero_point = inputs
    rank, element = rank_of(op.x), element_of(op.result)
    scaled = b.node("Mul", b.cast(x, f64), _along(b, b.cast(multiplier, f64), op.axis, rank))
    moved = _along(b, b.cast(zero_point, i64), op.axis, rank)
    whole = b.node("Add", b.cast(b.node("Round", scaled), i64), moved)
    limits = np.iinfo(dtype_of(element).name)
    clamped = b.node("Clip", whole, b.scalar(limits.min, i64), b.scalar(limits.max, i64))
    return b.cast(clamped, element)


def _along(b: Builder, parameter: Value, axis: IntegerAttr | None, rank: int) -> Value:
    """A parameter of one axis, shaped so that it broadcasts."""
    if axis is None:
        return parameter
    shape = [-1 if at == axis.value.data else 1 for at in range(rank)]
    return b.node("Reshape", parameter, b.integers(*shape))


EXPORTERS = dict(
    [
        one(QuantizeOp, _quantize),
        one(DequantizeOp, _dequantize),
        one(RequantizeOp, _requantize),
    ]
)
"""Op class to exporter."""
