"""The meanings of ONNX Runtime's operators (`com.microsoft`).

Source: onnxruntime/docs/ContribOperators.md; tested against onnxruntime itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from xdsl.ir import Operation

from mllm_compiler.dialects.locations import location_name
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.errors import CompileError
from mllm_compiler.reference import onnx_microsoft_attention as attention
from mllm_compiler.reference import onnx_microsoft_quantised as quantised
from mllm_compiler.reference.executor import Array, Frame, Meaning
from mllm_compiler.reference.onnx_arguments import Arguments, Compute, need, optional

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
    data = need(x, 0)
    return (data / (1 + np.exp(-cast(float, op.attribute("alpha")) * data)),)


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
    gamma, beta = need(x, 2), optional(x, 3) if centred else None
    total = _plus(need(x, 0), need(x, 1), optional(x, 4 if centred else 3))
    epsilon = cast(float, op.attribute("epsilon"))
    normal, mean, inverse = _normalised(total, epsilon, axes=(-1,), centred=centred)
    scaled = _plus(normal * gamma, beta).astype(total.dtype)
    return scaled, mean, inverse, total


def _simplified_norm(op: OnnxOp, x: Arguments) -> Sequence[Array]:
    data = need(x, 0)
    axis = cast(int, op.attribute("axis")) % data.ndim
    epsilon = cast(float, op.attribute("epsilon"))
    axes = tuple(range(axis, data.ndim))
    normal, _, inverse = _normalised(data, epsilon, axes=axes, centred=False)
    return (normal * need(x, 1)).astype(data.dtype), inverse


def _embed(op: OnnxOp, x: Arguments) -> Sequence[Array]:
    ids, segments, words, positions = need(x, 0), x[1], need(x, 2), need(x, 3)
    where = optional(x, 8)
    steps = np.arange(ids.shape[1], dtype=np.int64)
    where = np.broadcast_to(steps, ids.shape) if where is None else where
    total = words[ids] + positions[where]
    if segments is not None and x[4] is not None:
        total = total + need(x, 4)[segments]
    epsilon = cast(float, op.attribute("epsilon"))
    normal, _, _ = _normalised(total, epsilon, axes=(-1,), centred=True)
    mask = optional(x, 7)
    counts = np.zeros(len(ids)) if mask is None else mask.sum(-1)
    scaled = (normal * need(x, 5) + need(x, 6)).astype(words.dtype)
    return scaled, counts.astype(np.int32), total


def _fused_matmul(op: OnnxOp, x: Arguments) -> Sequence[Array]:
    a, b = (
        _turned(need(x, i), bool(op.attribute(f"transBatch{s}")), bool(op.attribute(f"trans{s}")))
        for i, s in enumerate("AB")
    )
    return (np.matmul(a, b) * a.dtype.type(cast(float, op.attribute("alpha"))),)


def _turned(x: Array, batch: bool, last: bool) -> Array:
    if batch:
        # The first axis becomes the last but one.
        x = np.moveaxis(x, 0, -2)
    return np.swapaxes(x, -1, -2) if last else x


COMPUTES: dict[str, Compute] = {
    "Gelu": lambda op, x: (gelu(need(x, 0)),),
    "FastGelu": lambda op, x: (fast_gelu(_plus(need(x, 0), optional(x, 1))),),
    "BiasGelu": lambda op, x: (gelu(need(x, 0) + need(x, 1)),),
    "QuickGelu": _quick_gelu,
    "BiasAdd": lambda op, x: (need(x, 0) + need(x, 1) + need(x, 2),),
    "SkipLayerNormalization": lambda op, x: _skip_norm(op, x, centred=True),
    "SkipSimplifiedLayerNormalization": lambda op, x: _skip_norm(op, x, centred=False),
    "SimplifiedLayerNormalization": _simplified_norm,
    "EmbedLayerNormalization": _embed,
    "FusedMatMul": _fused_matmul,
    **attention.COMPUTES,
    **quantised.COMPUTES,
}
"""What each operator computes from its operands, by position in its schema."""


def _meaning(compute: Compute) -> Meaning:
    def meaning(op: Operation, operands: Sequence[Array], frame: Frame) -> Sequence[Array]:
        assert isinstance(op, OnnxOp)
        given = iter(operands)
        arguments = [None if v is None else next(given) for v in op.inputs]
        try:
            made: Sequence[Any] = compute(op, arguments)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise CompileError(
                "MLC-D002",
                f"'{op.name}' cannot be computed by the reference: {error}",
                location=location_name(op),
            ) from error
        return [
            value for value, result in zip(made, op.outputs, strict=False) if result is not None
        ]

    return meaning


MEANINGS: dict[str, Meaning] = {f"onnx.microsoft.{n}": _meaning(c) for n, c in COMPUTES.items()}
"""Op name to meaning."""
