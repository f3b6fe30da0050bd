"""Meanings of the quantisation ops of the `mllm` dialect: sums of integers are exact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Attribute, SSAValue

from mllm_compiler.dialects.mllm import (
    DequantizeOp,
    DynamicQuantizeOp,
    IntegerConvOp,
    IntegerMatmulOp,
    QuantizedLinearOp,
    QuantizeOp,
)
from mllm_compiler.dialects.mllm.quant import value_of
from mllm_compiler.dialects.types import bounds_of, dtype_of, element_of
from mllm_compiler.reference.entry import one, several
from mllm_compiler.reference.executor import Array, Frame, Meaning
from mllm_compiler.reference.mllm_vision import convolve

EXACT_IN_SINGLE, EXACT_IN_DOUBLE = 1 << 24, 1 << 53
"""Sums of integers below this are exact in floating point, in any order."""


def exact(product: Callable[[Array, Array], Array], a: Array, b: Array, terms: int) -> Array:
    """A product of two integer arrays that sums `terms` products at a time, exactly, as i64."""
    return exact_sums(product, a, b, terms).astype(np.int64, copy=False)


def exact_sums(product: Callable[[Array, Array], Array], a: Array, b: Array, terms: int) -> Array:
    """The same sums in the type they were made in, f32, f64 or i64.

    It is floating point, where BLAS is, whenever the operands prove that no sum is rounded.
    """
    bound = terms * _magnitude(a) * _magnitude(b)
    if bound >= EXACT_IN_DOUBLE:
        return product(a.astype(np.int64), b.astype(np.int64))
    wide = np.float32 if bound < EXACT_IN_SINGLE else np.float64
    return product(a.astype(wide), b.astype(wide))


def _magnitude(x: Array) -> int:
    return max(abs(int(x.min())), abs(int(x.max()))) if x.size else 0


def less(codes: Array, zero: Array | None) -> NDArray[np.int64]:
    """Codes minus their zero point."""
    wide = codes.astype(np.int64)
    return wide if zero is None else wide - zero.astype(np.int64)


def quantized(x: Array, scale: Array, zero: Array | None, element: Any) -> Array:
    """The codes of real numbers; scale and zero point broadcast to x."""
    wide = np.result_type(x.dtype, scale.dtype, np.float32)
    with np.errstate(all="ignore"):
        codes = np.rint(x.astype(wide) / scale.astype(wide)).astype(np.float64)
    lowest, largest = bounds_of(element)
    codes = codes if zero is None else codes + zero.astype(np.float64)
    return np.nan_to_num(codes.clip(lowest, largest)).astype(dtype_of(element))


def dequantized(codes: Array, scale: Array, zero: Array | None, dtype: np.dtype[Any]) -> Array:
    """The real numbers of codes; scale and zero point broadcast to them."""
    wide = np.result_type(dtype, scale.dtype, np.float32)
    return (less(codes, zero).astype(wide) * scale.astype(wide)).astype(dtype)


def spread(
    parameter: Array | None, dims: tuple[int, ...], axis: int | None, size: int | None
) -> Any:
    """A scale or zero point of blocks, once for each element along their axis.

    One that all blocks share is left to be broadcast.
    """
    if parameter is None or not parameter.ndim or axis is None or size is None:
        return parameter
    if parameter.shape[axis] == 1:
        return parameter
    return np.repeat(parameter, size, axis).take(np.arange(dims[axis]), axis)


def _quantize(op: QuantizeOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, *sides = operands
    blocks = value_of(op.axis), value_of(op.block_size)
    scale, zero = (spread(p, x.shape, *blocks) for p in (*sides, None)[:2])
    return quantized(x, scale, zero, element_of(op.result))


def _dequantize(op: DequantizeOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, *sides = operands
    blocks = value_of(op.axis), value_of(op.block_size)
    scale, zero = (spread(p, x.shape, *blocks) for p in (*sides, None)[:2])
    return dequantized(x, scale, zero, dtype_of(element_of(op.result)))


def _dynamic_quantize(
    op: DynamicQuantizeOp, operands: Sequence[Array], frame: Frame
) -> Sequence[Array]:
    blocks = value_of(op.axis), value_of(op.block_size)
    symmetric = op.zero_point is None
    return quantized_by_data(operands[0], element_of(op.codes), *blocks, symmetric=symmetric)


def quantized_by_data(
    x: Array, element: Attribute, axis: int | None, size: int | None, *, symmetric: bool
) -> list[Array]:
    """Codes, scale and, where it is not symmetric, zero point of `mllm.dynamic_quantize`."""
    lowest, largest = bounds_of(element)
    bottom, top = _range(x, axis, size)
    if symmetric:
        scale = np.maximum(top, -bottom) / x.dtype.type(largest)
    else:
        scale = (top - bottom) / x.dtype.type(largest - lowest)
    scale = cast(Array, np.where(scale == 0, x.dtype.type(1), scale))
    wide = spread(scale, x.shape, axis, size)
    if symmetric:
        return [quantized(x, wide, None, element), scale]
    offset = np.rint((lowest - bottom / scale).clip(lowest, largest))
    point = np.asarray(offset).astype(dtype_of(element))
    codes = quantized(x, wide, spread(point, x.shape, axis, size), element)
    return [codes, scale, point]


def _range(x: Array, axis: int | None, size: int | None) -> tuple[Array, Array]:
    """The least and the largest number that share a scale, 0 among them."""
    zero = x.dtype.type(0)
    if axis is None:
        return x.min(initial=zero), x.max(initial=zero)
    if size is None:
        return tuple(f(axis, keepdims=True, initial=zero) for f in (x.min, x.max))
    rest = [(0, -extent % size if at == axis else 0) for at, extent in enumerate(x.shape)]
    blocks = np.pad(x, rest)
    blocks = blocks.reshape(*x.shape[:axis], -1, size, *x.shape[axis + 1 :])
    return tuple(f(axis + 1, initial=zero) for f in (blocks.min, blocks.max))


def _given(values: Sequence[SSAValue | None], operands: Sequence[Array]) -> list[Array | None]:
    """The arrays of optional operands, None for those that are absent."""
    arrays = iter(operands)
    return [None if v is None else next(arrays) for v in values]


def _integer_matmul(op: IntegerMatmulOp, operands: Sequence[Array], frame: Frame) -> Array:
    a, b, *zeros = operands
    a_zero, b_zero = _given((op.a_zero, op.b_zero), zeros)
    return integer_product(a, b, a_zero, b_zero)


def integer_product(a: Array, b: Array, a_zero: Array | None, b_zero: Array | None) -> Array:
    """The exact product of matrices of codes less their zero points, as i32."""
    a, b = less(a, a_zero), less(b, b_zero)
    return exact(np.matmul, a, b, a.shape[-1]).astype(np.int32)


def _integer_conv(op: IntegerConvOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, weight, *zeros = operands
    x_zero, weight_zero = _given((op.x_zero, op.weight_zero), zeros)
    x, weight = less(x, x_zero), less(weight, weight_zero)
    terms = weight[0].size
    return exact(lambda x, w: convolve(op, x, w, None), x, weight, terms).astype(np.int32)


def _quantized_linear(op: QuantizedLinearOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, x_scale, weight, scale, *sides = operands
    x_zero, weight_zero, bias = _given((op.x_zero, op.weight_zero, op.bias), sides)
    rows, matrix = Scaled(x, x_scale, x_zero), Scaled(weight, scale, weight_zero)
    y = scaled_product(rows, matrix, bias, value_of(op.block_size))
    return y.astype(dtype_of(element_of(op.result)))


@dataclass(frozen=True)
class Scaled:
    """Codes of rows, with a scale and a zero point for all, each row or each block of one."""

    codes: Array
    scale: Array
    zero: Array | None


def scaled_product(rows: Scaled, matrix: Scaled, bias: Array | None, size: int | None) -> Array:
    """`mllm.quantized_linear` in double precision; `size` is that of blocks, None: a row."""
    x, weight = rows.codes, matrix.codes
    step = x.shape[-1] if size is None else size
    count = -(-x.shape[-1] // step)
    sides = (rows.scale, rows.zero)
    in_blocks = any(p is not None and p.ndim and p.shape[-1] != 1 for p in sides)
    x_scale = rows.scale.astype(np.float64)
    scale, zero, x_scales, x_zeros = (
        _columns(p, count) for p in (matrix.scale, matrix.zero, x_scale, rows.zero)
    )
    y = np.zeros((*x.shape[:-1], len(weight)))
    scaled = np.empty_like(y)
    for at, start in enumerate(range(0, x.shape[-1], step)):
        part = less(x[..., start : start + step], x_zeros[at])
        block = less(weight[:, start : start + step], zero[at])
        sums = exact_sums(np.matmul, part, block.T, step)
        np.multiply(sums, scale[at].astype(np.float64).T, out=scaled)
        if in_blocks:
            scaled *= x_scales[at]
        y += scaled
    y = y if in_blocks else y * x_scale
    return y if bias is None else y + bias.astype(np.float64)


def _columns(parameter: Any, count: int) -> list[Any]:
    """What belongs to each block, of a scale or zero point for all or [..., blocks]."""
    if parameter is None or not parameter.ndim or parameter.shape[-1] == 1:
        return [parameter] * count
    return [parameter[..., [at]] for at in range(count)]


MEANINGS: dict[str, Meaning] = dict(
    [
        one(QuantizeOp, _quantize),
        one(DequantizeOp, _dequantize),
        several(DynamicQuantizeOp, _dynamic_quantize),
        one(IntegerMatmulOp, _integer_matmul),
        one(IntegerConvOp, _integer_conv),
        one(QuantizedLinearOp, _quantized_linear),
    ]
)
"""Op name to meaning."""
