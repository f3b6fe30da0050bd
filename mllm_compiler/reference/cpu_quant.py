"""Meanings of the ops of the cpu dialect on codes: weights are taken out of their panels first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import SSAValue

from mllm_compiler.dialects import cpu
from mllm_compiler.dialects.calls import ints
from mllm_compiler.dialects.cpu.coded import CodedWeight
from mllm_compiler.dialects.mllm import UnaryKind
from mllm_compiler.dialects.types import element_of, tensor_type
from mllm_compiler.reference.entry import one, several
from mllm_compiler.reference.executor import Array, Frame, Meaning
from mllm_compiler.reference.mllm_elementwise import apply_unary
from mllm_compiler.reference.mllm_quant import (
    Scaled,
    dequantized,
    exact,
    integer_product,
    less,
    quantized,
    quantized_by_data,
    scaled_product,
    spread,
)
from mllm_compiler.reference.mllm_vision import windows
from mllm_compiler.reference.panels import (
    columns,
    split_codes,
    unpack,
    unpack_codes,
    unpack_quads,
)

SINGLE = np.dtype(np.float32)


def _given(op: CodedWeight, operands: Sequence[Array]) -> dict[SSAValue, Array]:
    return dict(zip(op.operands, operands, strict=True))


def _matrix(op: CodedWeight, arrays: dict[SSAValue, Array], depth: int) -> Scaled:
    """The weight [n, depth] of an op."""
    n, size = op.n.value.data, op.block_size.value.data
    blocks = -(-depth // size) if size else 1
    scale, zero = arrays[op.w_scale], None if op.w_zero is None else arrays[op.w_zero]
    if zero is not None and zero.ndim:
        zero = unpack_codes(zero, n, blocks, op.zero_code.data)
    codes = unpack_quads(arrays[op.w], n, depth, op.code.data)
    return Scaled(codes, unpack(scale, n) if scale.ndim else scale, zero)


def _reals(op: CodedWeight, arrays: dict[SSAValue, Array], depth: int) -> Array:
    """The weight as f32."""
    matrix, size = _matrix(op, arrays, depth), op.block_size.value.data or max(depth, 1)
    shape = matrix.codes.shape
    scale, zero = (spread(p, shape, 1, size) for p in (matrix.scale, matrix.zero))
    return dequantized(matrix.codes, scale, zero, SINGLE)


def _quantized_linear(
    op: cpu.QuantizedLinearOp, operands: Sequence[Array], frame: Frame
) -> Sequence[Array]:
    arrays = _given(op, operands)
    x = arrays[op.x]
    zero = None if op.x_zero is None else arrays[op.x_zero]
    bias = None if op.bias is None else arrays[op.bias]
    matrix = _matrix(op, arrays, x.shape[-1])
    size = op.block_size.value.data or None
    rows = Scaled(x, arrays[op.x_scale], zero)
    return columns(op, scaled_product(rows, matrix, bias, size).astype(SINGLE), frame)


def _dequantized_linear(
    op: cpu.F32DequantizedLinearOp, operands: Sequence[Array], frame: Frame
) -> Sequence[Array]:
    arrays = _given(op, operands)
    x = arrays[op.x]
    y = np.matmul(x, _reals(op, arrays, x.shape[-1]).T)
    y = y if op.bias is None else y + arrays[op.bias]
    kind = op.activation.data
    return columns(op, y if kind == "none" else apply_unary(UnaryKind(kind), y), frame)


def _dequantized_embedding(
    op: cpu.F32DequantizedEmbeddingOp, operands: Sequence[Array], frame: Frame
) -> Array:
    depth = frame.shape(tensor_type(op.y))[-1]
    return _reals(op, _given(op, operands), depth)[operands[0]]


def _blocks(
    op: cpu.QuantizeOp | cpu.DequantizeOp | cpu.DynamicQuantizeOp,
) -> tuple[int | None, int | None]:
    axis, size = op.axis.value.data, op.block_size.value.data
    return (None if axis < 0 else axis), size or None


def _quantize(op: cpu.QuantizeOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, *sides = operands
    scale, zero = (spread(p, x.shape, *_blocks(op)) for p in (*sides, None)[:2])
    return quantized(x, scale, zero, element_of(op.y))


def _dequantize(op: cpu.DequantizeOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, *sides = operands
    scale, zero = (spread(p, x.shape, *_blocks(op)) for p in (*sides, None)[:2])
    return dequantized(x, scale, zero, SINGLE)


def _dynamic_quantize(
    op: cpu.DynamicQuantizeOp, operands: Sequence[Array], frame: Frame
) -> Sequence[Array]:
    element, symmetric = element_of(op.codes), op.zero_point is None
    return quantized_by_data(operands[0], element, *_blocks(op), symmetric=symmetric)


def _unpack(op: cpu.UnpackOp, operands: Sequence[Array], frame: Frame) -> Array:
    shape = frame.shape(tensor_type(op.y))
    return split_codes(operands[0], op.code.data)[: np.prod(shape, dtype=int)].reshape(shape)


def _integer_matmul(op: cpu.IntegerMatmulOp, operands: Sequence[Array], frame: Frame) -> Array:
    arrays = dict(zip(op.operands, operands, strict=True))
    zeros = (None if v is None else arrays[v] for v in (op.a_zero, op.b_zero))
    return integer_product(arrays[op.a], arrays[op.b], *zeros)


def _integer_conv(op: cpu.IntegerConvOp, operands: Sequence[Array], frame: Frame) -> Array:
    arrays = dict(zip(op.operands, operands, strict=True))
    x_zero, w_zero = (None if v is None else arrays[v] for v in (op.x_zero, op.w_zero))
    x, w, groups = less(arrays[op.x], x_zero), arrays[op.w], op.groups.value.data
    n = w.ndim - 2
    if w_zero is not None and w_zero.ndim:
        w_zero = w_zero.reshape(-1, *[1] * (n + 1))
    flat = less(w, w_zero).reshape(groups, w.shape[0] // groups, -1)
    seen = windows(x, w.shape[2:], ints(op.strides), ints(op.pads), ints(op.dilations), 0.0)
    seen = np.moveaxis(seen, 1, 1 + n)
    seen = seen.reshape(*seen.shape[: 1 + n], groups, flat.shape[2])
    y = exact(lambda a, b: np.einsum("...gk,gok->...go", a, b), seen, flat, flat.shape[2])
    y = y.reshape(*seen.shape[: 1 + n], w.shape[0])
    return np.ascontiguousarray(np.moveaxis(y, -1, 1)).astype(np.int32)


MEANINGS: dict[str, Meaning] = dict(
    [
        several(cpu.QuantizedLinearOp, _quantized_linear),
        several(cpu.F32DequantizedLinearOp, _dequantized_linear),
        one(cpu.F32DequantizedEmbeddingOp, _dequantized_embedding),
        one(cpu.QuantizeOp, _quantize),
        one(cpu.DequantizeOp, _dequantize),
        several(cpu.DynamicQuantizeOp, _dynamic_quantize),
        one(cpu.UnpackOp, _unpack),
        one(cpu.IntegerMatmulOp, _integer_matmul),
        one(cpu.IntegerConvOp, _integer_conv),
    ]
)
"""Op name to meaning."""
