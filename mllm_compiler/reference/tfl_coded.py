"""Meanings of the `tfl` dialect on codes: what LiteRT 2.3.0 computes, integer for integer.

Its kernels of 8 bits are XNNPACK's where XNNPACK has the operator: the exact sum of products, times
a scale of single precision, rounded once to even. Others, and all of 16 bits, are TFLite's own:
multipliers of 31 bits, tables of 512 pieces (`tfl_fixed_point`). All are equal to LiteRT's but two,
LOGISTIC and TANH of 16 bits, whose table of 256 numbers TFLite rounded in a way of its own: at most
a code away (seven where the scale of what they read is 2^-12, for which it has another kernel).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import i8
from xdsl.ir import SSAValue

from mllm_compiler.dialects import tfl
from mllm_compiler.dialects.mllm import ConstantOp, UnaryKind, WeightOp, array_of
from mllm_compiler.dialects.tfl import TflOp
from mllm_compiler.dialects.tfl.encoded import Code, encoding
from mllm_compiler.dialects.types import element_of
from mllm_compiler.reference.entry import one
from mllm_compiler.reference.executor import Array, Frame, Meaning
from mllm_compiler.reference.mllm_elementwise import apply_unary
from mllm_compiler.reference.tfl_fixed_point import (
    looked_up,
    multiplied,
    multiplied_once,
    multiplied_short,
    multiplier_of,
    scaled,
    table16,
)
from mllm_compiler.reference.tfl_vision import convolution, depthwise, pooled
from mllm_compiler.weights import WeightStore

F32 = np.float32

TABLES: dict[type[TflOp], UnaryKind] = {
    tfl.LogisticOp: UnaryKind.SIGMOID,
    tfl.TanhOp: UnaryKind.TANH,
    tfl.ExpOp: UnaryKind.EXP,
    tfl.LogOp: UnaryKind.LOG,
}
"""Functions that a table of all codes gives; GELU is one too."""

ADDEND_BITS: Final = 20
"""Bits of the larger addend's multiplier, in XNNPACK."""

SPAN: Final = 10.0
"""A score of 16 bits so far below the largest has the exponential 0."""


def constant_array(value: SSAValue, store: WeightStore) -> Array:
    """The numbers of a weight or a constant."""
    owner = value.owner
    if isinstance(owner, ConstantOp):
        return array_of(owner.value)
    assert isinstance(owner, WeightOp)
    blob = owner.value
    return store.array(blob.digest.data, str(blob.element), blob.dims)


def meant(value: SSAValue, codes: Array, store: WeightStore) -> Array:
    """What halves or codes mean, in single precision."""
    given, maker = encoding(value), value.owner
    if given is not None:
        return (codes.astype(F32) - F32(given[1])) * F32(given[0])
    if not isinstance(maker, tfl.PseudoQconstOp) or maker.scales is None:
        return codes.astype(F32)
    scales, size = constant_array(maker.scales, store), maker.block_size.value.data
    if size:
        # XNNPACK keeps the scales of blocks in bfloat16.
        wide = np.repeat(scales.astype(ml_dtypes.bfloat16).astype(F32), size, axis=1)
        return codes.astype(F32) * wide
    shape = [1] * codes.ndim
    shape[maker.quantized_dimension.value.data] = -1
    return codes.astype(F32) * scales.astype(F32).reshape(shape)


def quantize(op: tfl.QuantizeOp, operands: Sequence[Array], frame: Frame) -> Array:
    """Reals times 1 / scale, rounded to even."""
    scale, zero = _code(op.y)
    return _stored(op.y, np.rint(operands[0] * (F32(1) / F32(scale))) + zero)


def _code(value: SSAValue) -> Code:
    found = encoding(value)
    assert found is not None, "verified: it has an encoding"
    return found


def _stored(value: SSAValue, codes: Array) -> Array:
    """Codes within their range, in their type."""
    kind = np.int8 if element_of(value) == i8 else np.int16
    limits = np.iinfo(kind)
    return np.clip(codes, limits.min, limits.max).astype(kind)


def _is_byte(op: TflOp) -> bool:
    return element_of(op.results[0]) == i8


def _centred(value: SSAValue, codes: Array) -> Array:
    return codes.astype(np.int64) - _code(value)[1]


def _weighted(op: Any, sums: Array, bias: Sequence[Array], frame: Frame, *, short: bool) -> Array:
    """Sums of products with a weight, of one scale for each output channel, as codes."""
    (x, _), (y, zero) = _code(op.x), _code(op.y)
    maker = op.operands[1].owner
    assert isinstance(maker, tfl.PseudoQconstOp)
    assert maker.scales is not None
    weights = constant_array(maker.scales, frame.store).astype(F32).reshape(-1)
    total = sums.astype(np.int64) + (bias[0].astype(np.int64) if bias else 0)
    if _is_byte(op):
        real = F32(x) * weights / F32(y)
        return _stored(op.y, np.rint(total.astype(F32) * real) + zero)
    exact = float(F32(x)) * weights.astype(np.float64) / float(F32(y))
    return _stored(op.y, (multiplied_short if short else multiplied_once)(total, exact))


def _fully_connected(op: tfl.FullyConnectedOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, weights, *bias = operands
    sums = _centred(op.x, x).astype(np.float64) @ weights.astype(np.float64).T
    return _weighted(op, sums, bias, frame, short=False)


def _conv(op: tfl.Conv2dOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, filter, *bias = operands
    sums = convolution(op, _centred(op.x, x).astype(np.float64), filter.astype(np.float64))
    return _weighted(op, sums, bias, frame, short=True)


def _depthwise(op: tfl.DepthwiseConv2dOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, filter, *bias = operands
    sums = depthwise(op, _centred(op.x, x).astype(np.float64), filter.astype(np.float64))
    return _weighted(op, sums, bias, frame, short=True)


def _batch_matmul(op: tfl.BatchMatmulOp, operands: Sequence[Array], frame: Frame) -> Array:
    a, b = (_centred(v, c).astype(np.float64) for v, c in zip(op.operands, operands, strict=True))
    a = a.swapaxes(-1, -2) if op.adj_x else a
    b = b.swapaxes(-1, -2) if op.adj_y else b
    sums, scales = np.matmul(a, b), [_code(v)[0] for v in (op.a, op.b, op.y)]
    if _is_byte(op):
        real = F32(scales[0]) * F32(scales[1]) / F32(scales[2])
        return _stored(op.y, np.rint(sums.astype(F32) * real) + _code(op.y)[1])
    exact = scales[0] * scales[1] / scales[2]
    return _stored(op.y, multiplied_short(sums.astype(np.int64), exact))


def _sum(op: tfl.AddOp | tfl.SubOp, operands: Sequence[Array], frame: Frame) -> Array:
    a, b = (_centred(v, c) for v, c in zip(op.operands, operands, strict=True))
    sign = -1 if isinstance(op, tfl.SubOp) else 1
    (first, _), (second, _), (y, zero) = (_code(v) for v in (op.a, op.b, op.y))
    if not _is_byte(op):
        twice = 2 * max(first, second)
        a, b = (multiplied(v << 15, s / twice) for v, s in ((a, first), (b, second)))
        return _stored(op.y, multiplied(a + sign * b, twice / ((1 << 15) * y)))
    ratios = F32(first) / F32(y), F32(second) / F32(y)
    shift = ADDEND_BITS - (math.frexp(max(ratios))[1] - 1)
    left, right = (int(np.rint(float(r) * 2.0**shift)) for r in ratios)
    total = a * left + sign * b * right + (1 << (shift - 1))
    return _stored(op.y, (total >> shift) + zero)


def _mul(op: tfl.MulOp, operands: Sequence[Array], frame: Frame) -> Array:
    a, b = (_centred(v, c) for v, c in zip(op.operands, operands, strict=True))
    (first, _), (second, _), (y, zero) = (_code(v) for v in (op.a, op.b, op.y))
    real = F32(first) * F32(second) / F32(y)
    if _is_byte(op):
        return _stored(op.y, np.rint((a * b).astype(F32) * real) + zero)
    return _stored(op.y, multiplied(a * b, float(real)))


def _mean(op: tfl.MeanOp, operands: Sequence[Array], frame: Frame) -> Array:
    sums, count = _reduced(op, operands)
    (x, zero_x), (y, _) = _code(op.x), _code(op.y)
    if _is_byte(op):
        return _rescaled(op, sums, count, F32(1) / F32(count) * (F32(x) / F32(y)))
    whole, shift = multiplier_of(x / y)
    more = min(count.bit_length() - 1, 32, 31 + shift)
    return _stored(op.y, scaled(sums - count * zero_x, (whole << more) // count, shift - more))


def _total(op: tfl.SumOp, operands: Sequence[Array], frame: Frame) -> Array:
    sums, count = _reduced(op, operands)
    return _rescaled(op, sums, count, F32(_code(op.x)[0]) / F32(_code(op.y)[0]))


def _rescaled(op: tfl.MeanOp | tfl.SumOp, sums: Array, count: int, real: np.float32) -> Array:
    """Sums of codes by a number, and once more that of their zero points, as XNNPACK adds them."""
    start = F32(_code(op.y)[1]) - F32(count * _code(op.x)[1]) * real
    return _stored(op.y, np.rint(sums.astype(F32) * real + start))


def _reduced(op: tfl.MeanOp | tfl.SumOp, operands: Sequence[Array]) -> tuple[Array, int]:
    """Sums of codes along axes, and of how many elements."""
    axes = tuple(int(a) for a in operands[1].reshape(-1))
    x = operands[0].astype(np.int64)
    sums = x.sum(axis=axes, keepdims=bool(op.keep_dims))
    return sums, x.size // sums.size


def _function(op: Any, operands: Sequence[Array], frame: Frame) -> Array:
    """A function of each element, by the table of all codes or of 512 pieces."""
    gelu = isinstance(op, tfl.GeluOp)
    kind = UnaryKind.GELU_TANH if gelu and op.approximate else UnaryKind.GELU
    kind = kind if gelu else TABLES[type(op)]
    if not _is_byte(op):
        return _stored(op.y, _pieces(op, kind, operands[0]))
    (scale, zero), (y, zero_y) = _code(op.x), _code(op.y)
    reals = ((operands[0].astype(F32) - zero) * F32(scale)).astype(np.float64)
    # A logarithm of 0 or less has the least code.
    numbers = np.nan_to_num(apply_unary(kind, reals), nan=-np.inf, neginf=-np.inf)
    codes = np.rint(numbers / y) + zero_y
    return _stored(op.y, codes)


def _pieces(op: Any, kind: UnaryKind, codes: Array) -> Array:
    if kind in (UnaryKind.SIGMOID, UnaryKind.TANH):
        return _sigmoid(codes, _code(op.x)[0], twice=kind is UnaryKind.TANH)
    table = table16(lambda x: apply_unary(kind, x.astype(np.float64)), _code(op.x), _code(op.y))
    return looked_up(codes, table)


def _sigmoid(codes: Array, scale: float, *, twice: bool) -> Array:
    """The sigmoid of 24ths, or tanh x = 2 sigmoid(2 x) - 1, between 256 numbers of 16 bits."""
    step, bits = scale * 4096 * 3, 0
    while step <= 32767 / 2 and bits <= 30:
        step, bits = 2 * step, bits + 1
    at = (codes.astype(np.int64) * int(step) + ((1 << bits) >> 1)) >> bits
    table = np.minimum(np.rint(65536 / (1 + np.exp(-np.arange(257) / 24))), 65535)
    pieces, within = table.astype(np.int64), 8 if twice else 9
    place = np.minimum(np.abs(at) >> within, 254)
    part = np.abs(at) & ((1 << within) - 1)
    value = (pieces[place] << within) + part * (pieces[place + 1] - pieces[place])
    last = 0xFFFF << 8 if twice else 0x7FFF << 10
    value = np.where(np.abs(at) >> within >= 255, last, value)
    if twice:
        one, half = 1 << 23, 1 << 7
        return np.where(at >= 0, value - one + half, one - value + half - 1) >> 8
    one, half = 1 << 25, 1 << 9
    return np.where(at >= 0, value + half, one - value + half - 1) >> 10


def _relu(op: tfl.ReluOp, operands: Sequence[Array], frame: Frame) -> Array:
    (x, _), (y, zero) = _code(op.x), _code(op.y)
    codes = multiplied(_centred(op.x, operands[0]), float(F32(x) / F32(y))) + zero
    return _stored(op.y, np.maximum(codes, zero))


def _rsqrt(op: tfl.RsqrtOp, operands: Sequence[Array], frame: Frame) -> Array:
    (x, _), (y, zero) = _code(op.x), _code(op.y)
    codes = _centred(op.x, operands[0])
    roots = np.rint((1 << 20) / np.sqrt(np.maximum(codes, 1))).astype(np.int64)
    whole, shift = multiplier_of(float(F32(1) / (np.sqrt(F32(x)) * F32(y))))
    found = scaled(roots, whole, shift - 20) + zero
    return _stored(op.y, np.where(codes == 0, 127, found))


def _softmax(op: tfl.SoftmaxOp, operands: Sequence[Array], frame: Frame) -> Array:
    codes, beta = operands[0].astype(np.int64), op.beta.value.data
    below, scale = codes - codes.max(-1, keepdims=True), _code(op.x)[0]
    if not _is_byte(op):
        return _stored(op.y, _softmax16(below, scale * beta))
    table = np.exp(F32(-scale * beta) * np.arange(256).astype(F32)).astype(F32)
    raised = table[-below]
    # One after the other, as the kernel adds them.
    total = np.cumsum(raised, -1, dtype=F32)[..., -1:]
    return _stored(op.y, np.rint(raised * (F32(1) / (total * F32(1 / 256)))) - 128)


def _softmax16(below: Array, scale: float) -> Array:
    """Of differences to the largest: tables of e^x from -10 to 0, and of 1 / (1 + x) to 1."""
    unit = SPAN / 65535
    powers = table16(np.exp, (unit, 32767), (2 / 65535, 0), np.float64)
    inverses = table16(lambda x: 1 / (1 + x), (1 / 65535, -32768), (2 / 65535, 0), np.float64)
    at = np.clip(multiplied(below, scale / unit) + 32767, -32768, 32767)
    raised = looked_up(at, powers)
    total = raised.sum(-1, keepdims=True)
    room = 32 - np.frexp(total.astype(np.float64))[1].astype(np.int64)
    part = ((total << (room - 1)) + (1 << 13)) >> 14
    inverse = looked_up(np.clip(part - (1 << 15) - (1 << 16), -32768, 32767), inverses)
    right = 31 - room
    return (raised * inverse + (1 << (right - 1))) >> right


def _average(op: tfl.AveragePool2dOp, operands: Sequence[Array], frame: Frame) -> Array:
    mean = np.nanmean(pooled(op, operands[0].astype(np.float64), np.nan), 3)
    return _stored(op.y, np.copysign(np.floor(np.abs(mean) + 0.5), mean))


CODED: Mapping[str, Meaning] = dict(
    [
        *(one(kind, _function) for kind in (*TABLES, tfl.GeluOp)),
        one(tfl.FullyConnectedOp, _fully_connected),
        one(tfl.Conv2dOp, _conv),
        one(tfl.DepthwiseConv2dOp, _depthwise),
        one(tfl.BatchMatmulOp, _batch_matmul),
        one(tfl.AddOp, _sum),
        one(tfl.SubOp, _sum),
        one(tfl.MulOp, _mul),
        one(tfl.MeanOp, _mean),
        one(tfl.SumOp, _total),
        one(tfl.ReluOp, _relu),
        one(tfl.RsqrtOp, _rsqrt),
        one(tfl.SoftmaxOp, _softmax),
        one(tfl.AveragePool2dOp, _average),
    ]
)
"""The meaning of each op whose result has codes; others move them, as they move reals."""
