"""The meanings of ONNX Runtime's operators (`com.microsoft`).

Source: onnxruntime/docs/ContribOperators.md; tested against onnxruntime itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from xdsl.ir import Operation

from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.reference import onnx_microsoft_attention as attention
from mllm_compiler.reference.executor import Array, Frame, Meaning

Arguments = Sequence[Array | None]
Compute = Callable[[OnnxOp, Arguments], Sequence[Array]]

_erf = np.frompyfunc(math.erf, 1, 1)


def gelu(x: Array) -> Array:
    """X / 2 (1 + erf(x / sqrt 2))."""
    wide = x.astype(np.float64)
    cdf = (1 + np.asarray(_erf(wide * math.sqrt(0.5))).astype(np.float64)) / 2
    return (wide * cdf).astype(x.dtype)


def fast_gelu(x: Array) -> Array:
    """The tanh form of gelu."""
    wide = x.astype(np.float64)
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
    return (wide / 2 * (1 + np.tanh(inner))).astype(x.dtype)


def _quick_gelu(op: OnnxOp, x: Arguments) -> Sequence[Array]:
    data = _at(x, 0)
    return (data / (1 + np.exp(-cast(float, op.attribute("alpha")) * data)),)


def _at(x: Arguments, position: int) -> Array:
    value = x[position]
    assert value is not None
    return value


def _optional(x: Arguments, position: int) -> Array | None:
    return x[position] if position < len(x) else None


def _plus(x: Array, *others: Array | None) -> Array:
    for other in others:
        x = x if other is None else x + other
    return x


def _normalised(
    x: Array, epsilon: float, *, axes: tuple[int, ...], centred: bool
) -> tuple[Array, Array, Array]:
    """The normalised data, mean and inverse deviation, computed in f32 at least."""
    wide = x.astype(np.result_type(x.dtype, np.float32))
    mean = wide.mean(axes, keepdims=True) if centred else np.zeros_like(wide[..., :1])
    centre = wide - mean if centred else wide
    inverse = 1 / np.sqrt((centre * centre).mean(axes, keepdims=True) + np.float32(epsilon))
    return centre * inverse, mean, inverse


def _skip_norm(op: OnnxOp, x: Arguments, *, centred: bool) -> Sequence[Array]:
    gamma, beta = _at(x, 2), _optional(x, 3) if centred else None
    total = _plus(_at(x, 0), _at(x, 1), _optional(x, 4 if centred else 3))
    epsilon = cast(float, op.attribute("epsilon"))
    normal, mean, inverse = _normalised(total, epsilon, axes=(-1,), centred=centred)
    scaled = _plus(normal * gamma, beta).astype(total.dtype)
    return scaled, mean, inverse, total


def _simplified_norm(op: OnnxOp, x: Arguments) -> Sequence[Array]:
    data = _at(x, 0)
    axis = cast(int, op.attribute("axis")) % data.ndim
    epsilon = cast(float, op.attribute("epsilon"))
    axes = tuple(range(axis, data.ndim))
    normal, _, inverse = _normalised(data, epsilon, axes=axes, centred=False)
    return (normal * _at(x, 1)).astype(data.dtype), inverse


def _embed(op: OnnxOp, x: Arguments) -> Sequence[Array]:
    ids, segments, words, positions = _at(x, 0), x[1], _at(x, 2), _at(x, 3)
    where = _optional(x, 8)
    steps = np.arange(ids.shape[1], dtype=np.int64)
    where = np.broadcast_to(steps, ids.shape) if where is None else where
    total = words[ids] + positions[where]
    if segments is not None and x[4] is not None:
        total = total + _at(x, 4)[segments]
    epsilon = cast(float, op.attribute("epsilon"))
    normal, _, _ = _normalised(total, epsilon, axes=(-1,), centred=True)
    mask = _optional(x, 7)
    counts = np.zeros(len(ids)) if mask is None else mask.sum(-1)
    scaled = (normal * _at(x, 5) + _at(x, 6)).astype(words.dtype)
    return scaled, counts.astype(np.int32), total


def _fused_matmul(op: OnnxOp, x: Arguments) -> Sequence[Array]:
    a, b = (
        _turned(_at(x, i), bool(op.attribute(f"transBatch{s}")), bool(op.attribute(f"trans{s}")))
        for i, s in enumerate("AB")
    )
    return (np.matmul(a, b) * a.dtype.type(cast(float, op.attribute("alpha"))),)


def _turned(x: Array, batch: bool, last: bool) -> Array:
    if batch:
        # The first axis becomes the last but one.
        x = np.moveaxis(x, 0, -2)
    return np.swapaxes(x, -1, -2) if last else x


def unpacked(codes: Array, bits: int, count: int) -> Array:
    """Unsigned codes of `bits` bits, packed along the last axis, low bits of a byte first."""
    places = np.unpackbits(codes.astype(np.uint8), axis=-1, bitorder="little")
    each = places[..., : places.shape[-1] // bits * bits].reshape(*codes.shape[:-1], -1, bits)
    return (each * (1 << np.arange(bits))).sum(-1).astype(np.int32)[..., :count]


def _matmul_n_bits(op: OnnxOp, x: Arguments) -> Sequence[Array]:
    a, packed, scales = _at(x, 0), _at(x, 1), _at(x, 2)
    k, n, bits, block = (cast(int, op.attribute(s)) for s in ("K", "N", "bits", "block_size"))
    blocks = -(-k // block)
    codes = unpacked(packed.reshape(n, -1), bits, blocks * block).reshape(n, blocks, block)
    zero = _zero_points(_optional(x, 3), bits, n, blocks)
    wide = (codes - zero) * scales.reshape(n, blocks, 1).astype(np.float32)
    weight = wide.reshape(n, -1)[:, :k].astype(a.dtype)
    groups = _optional(x, 4)
    if groups is not None:
        order = groups[:k].astype(np.int64)
        plain = codes.reshape(n, -1)[:, :k] - zero.reshape(n, blocks)[:, order]
        weight = (plain * scales.reshape(n, blocks)[:, order]).astype(a.dtype)
    return (_plus(np.matmul(a, weight.T), _optional(x, 5)),)


def _zero_points(given: Array | None, bits: int, n: int, blocks: int) -> Array:
    if given is None:
        return np.full((n, blocks, 1), 1 << (bits - 1), np.int32)
    if given.dtype != np.uint8:
        return given.reshape(n, blocks, 1)
    return unpacked(given.reshape(n, -1), bits, blocks).reshape(n, blocks, 1)


def _dynamic_matmul(op: OnnxOp, x: Arguments) -> Sequence[Array]:
    """A is quantised to u8 per tensor, as `DynamicQuantizeLinear` does."""
    a, b, scale, zero = _at(x, 0), _at(x, 1), _at(x, 2), _optional(x, 3)
    low, high = min(0.0, float(a.min())), max(0.0, float(a.max()))
    step = np.float32((high - low) / 255) or np.float32(1)
    offset = np.clip(np.rint(-low / step), 0, 255)
    codes = np.clip(np.rint(a / step) + offset, 0, 255)
    exact = np.matmul((codes - offset).astype(np.int64), _less(b, zero))
    return (_plus((exact * (step * scale)).astype(np.float32), _optional(x, 4)),)


def _less(codes: Array, zero: Array | None) -> Array:
    wide = codes.astype(np.int64)
    return wide if zero is None else wide - zero.astype(np.int64)


def _integer_matmul(op: OnnxOp, x: Arguments) -> Sequence[Array]:
    exact = np.matmul(_less(_at(x, 0), _optional(x, 4)), _less(_at(x, 1), _optional(x, 5)))
    return (_plus((exact * (_at(x, 2) * _at(x, 3))).astype(np.float32), _optional(x, 6)),)


def _along(parameter: Array, axis: int, rank: int) -> Array:
    if parameter.ndim != 1 or parameter.size == 1:
        return parameter
    return parameter.reshape([-1 if i == axis % rank else 1 for i in range(rank)])


def _quantize(op: OnnxOp, x: Arguments) -> Sequence[Array]:
    data, axis = _at(x, 0), cast(int, op.attribute("axis"))
    zero = _optional(x, 2)
    dtype = np.dtype(np.uint8) if zero is None else zero.dtype
    limits = np.iinfo(dtype)
    offset = 0 if zero is None else _along(zero.astype(np.int64), axis, data.ndim)
    codes = np.rint(data / _along(_at(x, 1), axis, data.ndim)) + offset
    return (np.clip(codes, limits.min, limits.max).astype(dtype),)


def _dequantize(op: OnnxOp, x: Arguments) -> Sequence[Array]:
    codes, axis, zero = _at(x, 0), cast(int, op.attribute("axis")), _optional(x, 2)
    offset = None if zero is None else _along(zero, axis, codes.ndim)
    scale = _along(_at(x, 1), axis, codes.ndim)
    return ((_less(codes, offset) * scale).astype(scale.dtype),)


COMPUTES: dict[str, Compute] = {
    "Gelu": lambda op, x: (gelu(_at(x, 0)),),
    "FastGelu": lambda op, x: (fast_gelu(_plus(_at(x, 0), _optional(x, 1))),),
    "BiasGelu": lambda op, x: (gelu(_at(x, 0) + _at(x, 1)),),
    "QuickGelu": _quick_gelu,
    "BiasAdd": lambda op, x: (_at(x, 0) + _at(x, 1) + _at(x, 2),),
    "SkipLayerNormalization": lambda op, x: _skip_norm(op, x, centred=True),
    "SkipSimplifiedLayerNormalization": lambda op, x: _skip_norm(op, x, centred=False),
    "SimplifiedLayerNormalization": _simplified_norm,
    "EmbedLayerNormalization": _embed,
    "FusedMatMul": _fused_matmul,
    "MatMulNBits": _matmul_n_bits,
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "MatMulIntegerToFloat": _integer_matmul,
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    **attention.COMPUTES,
}
"""What each operator computes from its operands, by position in its schema."""


def _meaning(compute: Compute) -> Meaning:
    def meaning(op: Operation, operands: Sequence[Array], frame: Frame) -> Sequence[Array]:
        assert isinstance(op, OnnxOp)
        given = iter(operands)
        made: Sequence[Any] = compute(op, [None if v is None else next(given) for v in op.inputs])
        return [
            value for value, result in zip(made, op.outputs, strict=False) if result is not None
        ]

    return meaning


MEANINGS: dict[str, Meaning] = {f"onnx.microsoft.{n}": _meaning(c) for n, c in COMPUTES.items()}
"""Op name to meaning."""
