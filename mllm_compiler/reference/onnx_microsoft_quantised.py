"""The meanings of ONNX Runtime's quantised operators (`com.microsoft`); sums of codes are exact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.dialects.onnx_types import element_of_numpy
from mllm_compiler.reference.executor import Array
from mllm_compiler.reference.mllm_linear import softmax
from mllm_compiler.reference.mllm_quant import dequantized, exact, less, quantized
from mllm_compiler.reference.onnx_arguments import Arguments, Compute, need, optional
from mllm_compiler.weights import DTYPES, unpacked


def _plus(x: Array, other: Array | None) -> Array:
    return x if other is None else x + other


def _codes(packed: Array, bits: int, rows: int, columns: int) -> Array:
    """Codes of `bits` bits, of rows that begin at a byte each, as i32."""
    raw = packed.reshape(rows, -1)
    dtype, places = DTYPES[f"ui{bits}"], raw.shape[1] * 8 // bits
    wide = unpacked(raw.reshape(-1), dtype, rows * places)
    return wide.reshape(rows, places)[:, :columns].astype(np.int32)


def _matmul_n_bits(op: OnnxOp, x: Arguments) -> Sequence[Array]:
    a, packed, scales, zero, order = (
        need(x, 0),
        need(x, 1),
        need(x, 2),
        x[3:4],
        optional(x, 4),
    )
    k, n, bits, block = (cast(int, op.attribute(s)) for s in ("K", "N", "bits", "block_size"))
    blocks = -(-k // block)
    of_column = np.arange(k) // block if order is None else order[:k].astype(np.int64)
    points = _zero_points(zero[0] if zero else None, bits, n, blocks)[:, of_column]
    codes = _codes(packed, bits, n, k) - points
    weight = codes * scales.reshape(n, blocks)[:, of_column].astype(np.float32)
    return (_plus(np.matmul(a, weight.astype(a.dtype).T), optional(x, 5)),)


def _zero_points(given: Array | None, bits: int, n: int, blocks: int) -> Array:
    if given is None:
        return np.full((n, blocks), 1 << (bits - 1), np.int32)
    return given.reshape(n, blocks) if given.dtype != np.uint8 else _codes(given, bits, n, blocks)


def _product(a: Array, a_zero: Array | None, b: Array, b_zero: Array | None) -> Array:
    if a_zero is not None and a_zero.ndim == 1:
        a_zero = a_zero[:, None]
    return exact(np.matmul, less(a, a_zero), less(b, b_zero), a.shape[-1])


def _scaled(sums: Array, a_scale: Array, b_scale: Array, bias: Array | None) -> Array:
    return _plus((sums * (a_scale * b_scale)).astype(np.float32), bias)


def _dynamic_matmul(op: OnnxOp, x: Arguments) -> Sequence[Array]:
    """A is quantised to u8 per tensor, as `DynamicQuantizeLinear` does."""
    a, b, scale, zero = need(x, 0), need(x, 1), need(x, 2), optional(x, 3)
    low, high = min(0.0, float(a.min())), max(0.0, float(a.max()))
    step = np.float32((high - low) / 255) or np.float32(1)
    offset = np.clip(np.rint(-low / step), 0, 255)
    codes = np.clip(np.rint(a / step) + offset, 0, 255)
    sums = _product(codes, np.asarray(offset), b, zero)
    return (_scaled(sums, np.asarray(step), scale, optional(x, 4)),)


def _integer_matmul(op: OnnxOp, x: Arguments) -> Sequence[Array]:
    sums = _product(need(x, 0), optional(x, 4), need(x, 1), optional(x, 5))
    return (_scaled(sums, need(x, 2), need(x, 3), optional(x, 6)),)


def _gemm(op: OnnxOp, x: Arguments) -> Sequence[Array]:
    a, b = (
        need(x, at).T if op.attribute(flag) else need(x, at)
        for at, flag in ((0, "transA"), (3, "transB"))
    )
    sums = _product(a, need(x, 2), b, need(x, 5))
    if (bias := optional(x, 6)) is not None:
        sums = sums + bias
    y = _scaled(sums, need(x, 1), need(x, 4) * np.float32(cast(float, op.attribute("alpha"))), None)
    scale, zero = optional(x, 7), optional(x, 8)
    if scale is None:
        return (y,)
    return (quantized(y, scale, zero, element_of_numpy(need(x, 8).dtype)),)


def _along(parameter: Array | None, axis: int, rank: int) -> Any:
    if parameter is None or parameter.ndim != 1 or parameter.size == 1:
        return parameter
    return parameter.reshape([-1 if i == axis % rank else 1 for i in range(rank)])


def _parameters(op: OnnxOp, x: Arguments) -> tuple[Array, Array | None]:
    """Scale and zero point, so that they broadcast to the data."""
    data, axis = need(x, 0), cast(int, op.attribute("axis"))
    size, sides = cast(int, op.attribute("block_size")), (need(x, 1), optional(x, 2))
    if size:
        columns = np.arange(int(data.shape[axis])) // size
        return cast(Any, tuple(None if p is None else p.take(columns, axis) for p in sides))
    return cast(Any, tuple(_along(p, axis, data.ndim) for p in sides))


def _quantize(op: OnnxOp, x: Arguments) -> Sequence[Array]:
    scale, zero = _parameters(op, x)
    dtype = np.dtype(np.uint8) if zero is None else zero.dtype
    return (quantized(need(x, 0), scale, zero, element_of_numpy(dtype)),)


def _dequantize(op: OnnxOp, x: Arguments) -> Sequence[Array]:
    scale, zero = _parameters(op, x)
    return (dequantized(need(x, 0), scale, zero, scale.dtype),)


def _through(compute: Callable[[OnnxOp, list[Array]], Array], count: int) -> Compute:
    """A function of real numbers for `count` operands of code, scale and zero point each."""

    def meaning(op: OnnxOp, x: Arguments) -> Sequence[Array]:
        reals = [_real(x, 3 * i) for i in range(count)]
        scale, zero = need(x, 3 * count), optional(x, 3 * count + 1)
        return (quantized(compute(op, reals), scale, zero, element_of_numpy(need(x, 0).dtype)),)

    return meaning


def _real(x: Arguments, at: int) -> Array:
    scale = need(x, at + 1)
    return dequantized(need(x, at), scale, optional(x, at + 2), scale.dtype)


def _concat(op: OnnxOp, x: Arguments) -> Sequence[Array]:
    """The scale and zero point of the result lead."""
    parts = [_real(x, at) for at in range(2, len(x), 3)]
    y = np.concatenate(parts, axis=cast(int, op.attribute("axis")))
    return (quantized(y, need(x, 0), need(x, 1), element_of_numpy(need(x, 1).dtype)),)


def _leaky_relu(op: OnnxOp, x: list[Array]) -> Array:
    slope = np.float32(cast(float, op.attribute("alpha")))
    return np.where(x[0] < 0, x[0] * slope, x[0])


COMPUTES: dict[str, Compute] = {
    "MatMulNBits": _matmul_n_bits,
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "MatMulIntegerToFloat": _integer_matmul,
    "QGemm": _gemm,
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "QLinearAdd": _through(lambda op, x: x[0] + x[1], 2),
    "QLinearMul": _through(lambda op, x: x[0] * x[1], 2),
    "QLinearSigmoid": _through(lambda op, x: 1 / (1 + np.exp(-x[0])), 1),
    "QLinearLeakyRelu": _through(_leaky_relu, 1),
    "QLinearConcat": _concat,
    "QLinearSoftmax": _through(lambda op, x: softmax(x[0], cast(int, op.attribute("axis"))), 1),
}
"""What each operator computes from its operands, by position in its schema."""
