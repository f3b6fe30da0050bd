"""Meanings of products, look-ups, normalisations and reductions of the `mllm` dialect."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mllm_compiler.dialects.mllm import (
    ConstantOp,
    EmbeddingOp,
    GatedMlpOp,
    GatherOp,
    LayerNormOp,
    LinearOp,
    MatmulOp,
    MlpOp,
    ReduceKind,
    ReduceOp,
    RmsNormOp,
    SoftmaxOp,
    UnaryKind,
    WeightOp,
    array_of,
)
from mllm_compiler.reference.entry import one
from mllm_compiler.reference.executor import Array, Frame, Meaning
from mllm_compiler.reference.mllm_elementwise import apply_unary


def wide(x: Array) -> Array:
    """Half precisions in single precision, so that sums are not rounded at every step."""
    return x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind not in "iu" else x


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """X weight^T + bias in the dtype of x."""
    y = np.matmul(wide(x), wide(weight).T)
    return (y if bias is None else y + wide(bias)).astype(x.dtype, copy=False)


def softmax(x: Array, axis: int) -> Array:
    """Exponentials that sum to 1 along axis."""
    with np.errstate(invalid="ignore"):
        raised = np.exp(x - x.max(axis, keepdims=True))
        return raised / raised.sum(axis, keepdims=True)


def _weight(op: WeightOp, operands: Sequence[Array], frame: Frame) -> Array:
    blob = op.value
    return frame.store.array(blob.digest.data, str(blob.element), blob.dims)


def _constant(op: ConstantOp, operands: Sequence[Array], frame: Frame) -> Array:
    return array_of(op.value)


def _linear(op: LinearOp, operands: Sequence[Array], frame: Frame) -> Array:
    return linear(*operands)


def _matmul(op: MatmulOp, operands: Sequence[Array], frame: Frame) -> Array:
    a, b = operands
    return np.matmul(wide(a), wide(b)).astype(a.dtype, copy=False)


def _embedding(op: EmbeddingOp, operands: Sequence[Array], frame: Frame) -> Array:
    return operands[0][operands[1].astype(np.int64)]


def _gather(op: GatherOp, operands: Sequence[Array], frame: Frame) -> Array:
    return np.take(operands[0], operands[1].astype(np.int64), axis=op.axis.value.data)


def _gated_mlp(op: GatedMlpOp, operands: Sequence[Array], frame: Frame) -> Array:
    return gated_mlp(UnaryKind(op.activation.data), *operands)


def gated_mlp(kind: UnaryKind, x: Array, gate: Array, up: Array, down: Array) -> Array:
    """(function(x gate^T) * (x up^T)) down^T."""
    gated = apply_unary(kind, linear(x, gate))
    return linear(gated * linear(x, up), down)


def _mlp(op: MlpOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, w1, w2, *biases = operands
    b1 = biases.pop(0) if op.b1 is not None else None
    b2 = biases.pop(0) if op.b2 is not None else None
    return linear(apply_unary(UnaryKind(op.activation.data), linear(x, w1, b1)), w2, b2)


def _layer_norm(op: LayerNormOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, *sides = operands
    weight = sides.pop(0) if op.weight is not None else None
    bias = sides.pop(0) if op.bias is not None else None
    return layer_norm(x, weight, bias, op.epsilon.value.data)


def layer_norm(x: Array, weight: Array | None, bias: Array | None, epsilon: float) -> Array:
    """Rows of mean 0 and variance 1, scaled and shifted."""
    row = wide(x)
    centred = row - row.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    y = centred / np.sqrt(variance + row.dtype.type(epsilon))
    y = y if weight is None else y * weight
    y = y if bias is None else y + bias
    return y.astype(x.dtype, copy=False)


def _rms_norm(op: RmsNormOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, weight = operands
    return rms_norm(x, weight, op.epsilon.value.data)


def rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    """Rows of unit root mean square, scaled."""
    row = wide(x)
    square = (row * row).mean(-1, keepdims=True)
    y = row / np.sqrt(square + row.dtype.type(epsilon)) * weight
    return y.astype(x.dtype, copy=False)


def _softmax(op: SoftmaxOp, operands: Sequence[Array], frame: Frame) -> Array:
    return softmax(wide(operands[0]), op.axis.value.data).astype(operands[0].dtype, copy=False)


Reduction = Callable[[Array, tuple[int, ...], bool], Array]

REDUCE: dict[ReduceKind, Reduction] = {
    ReduceKind.SUM: lambda x, a, k: np.sum(x, axis=a, keepdims=k, dtype=x.dtype),
    ReduceKind.MEAN: lambda x, a, k: np.mean(x, axis=a, keepdims=k, dtype=x.dtype),
    ReduceKind.MAX: lambda x, a, k: np.max(x, axis=a, keepdims=k),
    ReduceKind.MIN: lambda x, a, k: np.min(x, axis=a, keepdims=k),
    ReduceKind.PROD: lambda x, a, k: np.prod(x, axis=a, keepdims=k, dtype=x.dtype),
    ReduceKind.L1: lambda x, a, k: np.sum(np.abs(x), axis=a, keepdims=k, dtype=x.dtype),
    ReduceKind.L2: lambda x, a, k: np.sqrt(np.sum(x * x, axis=a, keepdims=k)).astype(x.dtype),
    ReduceKind.SUM_SQUARE: lambda x, a, k: np.sum(x * x, axis=a, keepdims=k, dtype=x.dtype),
    ReduceKind.LOG_SUM: lambda x, a, k: np.log(np.sum(x, axis=a, keepdims=k)).astype(x.dtype),
    ReduceKind.LOG_SUM_EXP: lambda x, a, k: log_sum_exp(x, a, k),
}
"""Each reduction of an array over axes."""


def log_sum_exp(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """log(sum(exp(x))) without overflow."""
    top = x.max(axes, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    y = np.log(np.exp(x - top).sum(axes, keepdims=True)) + top
    return y.astype(x.dtype) if keepdims else y.squeeze(axes).astype(x.dtype)


def _reduce(op: ReduceOp, operands: Sequence[Array], frame: Frame) -> Array:
    x = operands[0]
    with np.errstate(all="ignore"):
        y = REDUCE[op.kind.data](wide(x), op.axis_list, bool(op.keepdims))
    return np.asarray(y).astype(x.dtype, copy=False)


MEANINGS: dict[str, Meaning] = dict(
    [
        one(WeightOp, _weight),
        one(ConstantOp, _constant),
        one(LinearOp, _linear),
        one(MatmulOp, _matmul),
        one(EmbeddingOp, _embedding),
        one(GatherOp, _gather),
        one(GatedMlpOp, _gated_mlp),
        one(MlpOp, _mlp),
        one(LayerNormOp, _layer_norm),
        one(RmsNormOp, _rms_norm),
        one(SoftmaxOp, _softmax),
        one(ReduceOp, _reduce),
    ]
)
"""Op name to meaning."""
