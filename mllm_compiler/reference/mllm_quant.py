"""Meanings of the quantisation ops of the `mllm` dialect: exact integer arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import IntegerAttr

from mllm_compiler.dialects.mllm import DequantizeOp, QuantizeOp, RequantizeOp
from mllm_compiler.dialects.types import dtype_of, element_of
from mllm_compiler.reference.entry import one
from mllm_compiler.reference.executor import Array, Frame, Meaning


def along(parameter: Array, rank: int, axis: IntegerAttr | None) -> Array:
    """A parameter of one axis, shaped so that it broadcasts against a tensor of `rank`."""
    if axis is None:
        return parameter
    return parameter.reshape([-1 if i == axis.value.data else 1 for i in range(rank)])


def _clamped(real: Array, zero_point: Array, dtype: np.dtype[np.generic]) -> Array:
    limits = np.iinfo(dtype.name)
    shifted = np.rint(real).astype(np.int64) + zero_point.astype(np.int64)
    return shifted.clip(limits.min, limits.max).astype(dtype)


def _quantize(op: QuantizeOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, scale, zero_point = operands
    scale, zero_point = (along(p, x.ndim, op.axis) for p in (scale, zero_point))
    return _clamped(x / scale, zero_point, dtype_of(element_of(op.result)))


def _dequantize(op: DequantizeOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, scale, zero_point = operands
    scale, zero_point = (along(p, x.ndim, op.axis) for p in (scale, zero_point))
    shifted = x.astype(np.int64) - zero_point.astype(np.int64)
    return shifted.astype(scale.dtype) * scale


def _requantize(op: RequantizeOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, multiplier, zero_point = operands
    multiplier, zero_point = (along(p, x.ndim, op.axis) for p in (multiplier, zero_point))
    scaled = x.astype(np.float64) * multiplier.astype(np.float64)
    return _clamped(scaled, zero_point, dtype_of(element_of(op.result)))


MEANINGS: dict[str, Meaning] = dict(
    [
        one(QuantizeOp, _quantize),
        one(DequantizeOp, _dequantize),
        one(RequantizeOp, _requantize),
    ]
)
"""Op name to meaning."""
