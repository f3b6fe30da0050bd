"""Meanings of the `tfl` dialect: what each operator of TFLite computes, on NumPy arrays.

Of reals, sums are in another order than in TFLite, so results agree to rounding; what ops on codes
compute stands in `tfl_coded`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from xdsl.ir import Operation

from mllm_compiler.dialects import tfl
from mllm_compiler.dialects.mllm import UnaryKind
from mllm_compiler.dialects.tfl import TflOp
from mllm_compiler.dialects.tfl.encoded import encoding
from mllm_compiler.dialects.tfl.vision import Pool2dOp
from mllm_compiler.dialects.types import dtype_of, element_of, extents
from mllm_compiler.reference.entry import one, several
from mllm_compiler.reference.executor import Array, Frame, Meaning
from mllm_compiler.reference.mllm_elementwise import apply_unary
from mllm_compiler.reference.mllm_linear import linear, softmax
from mllm_compiler.reference.mllm_scan import cumsum
from mllm_compiler.reference.tfl_coded import CODED, meant, quantize
from mllm_compiler.reference.tfl_vision import convolution, depthwise, pooled

LOWEST, HIGHEST = np.float32(-128), np.float32(127)
"""The codes of quantised rows."""


def _squared_difference(a: Array, b: Array) -> Array:
    return np.square(np.subtract(a, b))


UNARY: dict[type[TflOp], UnaryKind] = {
    tfl.AbsOp: UnaryKind.ABS,
    tfl.CeilOp: UnaryKind.CEIL,
    tfl.CosOp: UnaryKind.COS,
    tfl.ExpOp: UnaryKind.EXP,
    tfl.FloorOp: UnaryKind.FLOOR,
    tfl.HardSwishOp: UnaryKind.HARD_SWISH,
    tfl.LogOp: UnaryKind.LOG,
    tfl.LogicalNotOp: UnaryKind.NOT,
    tfl.LogisticOp: UnaryKind.SIGMOID,
    tfl.NegOp: UnaryKind.NEG,
    tfl.ReluOp: UnaryKind.RELU,
    tfl.RoundOp: UnaryKind.ROUND,
    tfl.RsqrtOp: UnaryKind.RSQRT,
    tfl.SignOp: UnaryKind.SIGN,
    tfl.SinOp: UnaryKind.SIN,
    tfl.SqrtOp: UnaryKind.SQRT,
    tfl.TanhOp: UnaryKind.TANH,
}

BINARY: dict[type[TflOp], Callable[..., Any]] = {
    tfl.AddOp: np.add,
    tfl.SubOp: np.subtract,
    tfl.MulOp: np.multiply,
    tfl.DivOp: np.divide,
    tfl.MaximumOp: np.maximum,
    tfl.MinimumOp: np.minimum,
    tfl.PowOp: np.power,
    tfl.FloorModOp: np.mod,
    tfl.LogicalAndOp: np.logical_and,
    tfl.LogicalOrOp: np.logical_or,
    tfl.SquaredDifferenceOp: _squared_difference,
    tfl.EqualOp: np.equal,
    tfl.NotEqualOp: np.not_equal,
    tfl.LessOp: np.less,
    tfl.LessEqualOp: np.less_equal,
    tfl.GreaterOp: np.greater,
    tfl.GreaterEqualOp: np.greater_equal,
}

REDUCE: dict[type[TflOp], Callable[..., Any]] = {
    tfl.MeanOp: np.mean,
    tfl.SumOp: np.sum,
    tfl.ReduceMaxOp: np.max,
    tfl.ReduceMinOp: np.min,
    tfl.ReduceProdOp: np.prod,
}

ENDINGS: dict[str, Callable[[Array], Any]] = {
    "NONE": lambda x: x,
    "RELU": lambda x: np.maximum(x, 0),
    "RELU_N1_TO_1": lambda x: np.clip(x, -1, 1),
    "RELU6": lambda x: np.clip(x, 0, 6),
    "TANH": np.tanh,
}
"""What a fused activation does."""


def _unary(op: TflOp, operands: Sequence[Array], frame: Frame) -> Array:
    return apply_unary(UNARY[type(op)], operands[0])


def _gelu(op: tfl.GeluOp, operands: Sequence[Array], frame: Frame) -> Array:
    return apply_unary(UnaryKind.GELU_TANH if op.approximate else UnaryKind.GELU, operands[0])


def _binary(op: TflOp, operands: Sequence[Array], frame: Frame) -> Array:
    with np.errstate(all="ignore"):
        y = BINARY[type(op)](*operands)
    ending = op.properties.get("fused_activation_function")
    return y if ending is None else _ended(ending, y)


def _select(op: tfl.SelectV2Op, operands: Sequence[Array], frame: Frame) -> Array:
    return np.where(operands[0], operands[1], operands[2])


def _cast(op: tfl.CastOp, operands: Sequence[Array], frame: Frame) -> Array:
    return operands[0].astype(dtype_of(element_of(op.y)))


def _fully_connected(op: tfl.FullyConnectedOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, weights, *bias = operands
    if isinstance(op.weights.owner, tfl.PseudoQconstOp):
        x, weights = quantised_rows(x), meant(op.weights, weights, frame.store)
    y = linear(x, weights, bias[0] if bias else None)
    return _ended(op.fused_activation_function, y).reshape(extents(op.y))


def quantised_rows(x: Array) -> Array:
    """Rows [..., K] as XNNPACK quantises them for weights of codes: 8 bits, a zero point each.

    scale = (max - min) / 255 over [min(x, 0), max(x, 0)]; the zero point is that of the end which
    rounds with the smaller error, as in gemmlowp.
    """
    low = np.minimum(x.min(-1, keepdims=True), 0).astype(np.float32)
    high = np.maximum(x.max(-1, keepdims=True), 0).astype(np.float32)
    scale = np.where(low == high, np.float32(1), (high - low) / np.float32(255))
    below, above = low / scale, high / scale
    from_low = (LOWEST + below) + (HIGHEST + above) < 0
    ends = cast(Array, np.where(from_low, LOWEST - below, HIGHEST - above))
    zero = np.rint(ends.clip(LOWEST, HIGHEST)).astype(np.float32)
    codes = np.clip(np.rint(x / scale) + zero, LOWEST, HIGHEST)
    return ((codes - zero) * scale).astype(np.float32)


def _batch_matmul(op: tfl.BatchMatmulOp, operands: Sequence[Array], frame: Frame) -> Array:
    a, b = operands
    a = a.swapaxes(-1, -2) if op.adj_x else a
    b = b.swapaxes(-1, -2) if op.adj_y else b
    return np.matmul(a, b)


def _softmax(op: tfl.SoftmaxOp, operands: Sequence[Array], frame: Frame) -> Array:
    return softmax(operands[0] * operands[0].dtype.type(op.beta.value.data), -1)


def _reduce(op: TflOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, axes = operands
    dropped, keeps = tuple(int(a) for a in axes.reshape(-1)), len(extents(op.results[0])) == x.ndim
    y = REDUCE[type(op)](x, axis=dropped, keepdims=keeps)
    return np.asarray(y, x.dtype)


def _cumsum(op: tfl.CumsumOp, operands: Sequence[Array], frame: Frame) -> Array:
    axis = int(operands[1].reshape(-1)[0])
    return cumsum(operands[0], axis, exclusive=bool(op.exclusive), reverse=bool(op.reverse))


def _reshape(op: TflOp, operands: Sequence[Array], frame: Frame) -> Array:
    return operands[0].reshape(extents(op.results[0]))


def _transpose(op: tfl.TransposeOp, operands: Sequence[Array], frame: Frame) -> Array:
    return np.ascontiguousarray(operands[0].transpose([int(p) for p in operands[1]]))


def _concatenation(op: tfl.ConcatenationOp, operands: Sequence[Array], frame: Frame) -> Array:
    return _ended(op.fused_activation_function, np.concatenate(operands, op.axis.value.data))


def _split(op: tfl.SplitOp, operands: Sequence[Array], frame: Frame) -> Sequence[Array]:
    axis = int(operands[0].reshape(-1)[0])
    return np.split(operands[1], op.num_splits.value.data, axis)


def _strided_slice(op: tfl.StridedSliceOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, *sides = operands
    return x[tuple(slice(int(b), int(e), int(s)) for b, e, s in zip(*sides, strict=True))]


def _pad(op: tfl.PadV2Op, operands: Sequence[Array], frame: Frame) -> Array:
    x, paddings, value = operands
    return np.pad(x, [(int(a), int(b)) for a, b in paddings], constant_values=value.item())


def _gather(op: tfl.GatherOp, operands: Sequence[Array], frame: Frame) -> Array:
    return np.take(operands[0], operands[1], axis=op.axis.value.data)


def _broadcast_to(op: tfl.BroadcastToOp, operands: Sequence[Array], frame: Frame) -> Array:
    return np.broadcast_to(operands[0], extents(op.y))


def _conv(op: tfl.Conv2dOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, filter, *bias = operands
    y = convolution(op, x, filter)
    return _ended(op.fused_activation_function, y + bias[0] if bias else y)


def _depthwise(op: tfl.DepthwiseConv2dOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, filter, *bias = operands
    y = depthwise(op, x, filter)
    return _ended(op.fused_activation_function, y + bias[0] if bias else y)


def _pool(op: Pool2dOp, operands: Sequence[Array], frame: Frame) -> Array:
    largest = isinstance(op, tfl.MaxPool2dOp)
    patches = pooled(op, operands[0].astype(np.float32), -np.inf if largest else np.nan)
    y = patches.max(3) if largest else np.nanmean(patches, 3)
    return _ended(op.fused_activation_function, y.astype(operands[0].dtype))


def _qconst(op: tfl.PseudoQconstOp, operands: Sequence[Array], frame: Frame) -> Array:
    return operands[0]


def _dequantize(op: tfl.DequantizeOp, operands: Sequence[Array], frame: Frame) -> Array:
    return meant(op.x, operands[0], frame.store)


def _ended(ending: Any, y: Array) -> Array:
    return ENDINGS[ending.data](y)


REAL: dict[str, Meaning] = dict(
    [
        *(one(kind, _unary) for kind in UNARY),
        *(one(kind, _binary) for kind in BINARY),
        *(one(kind, _reduce) for kind in REDUCE),
        one(tfl.GeluOp, _gelu),
        one(tfl.SelectV2Op, _select),
        one(tfl.CastOp, _cast),
        one(tfl.FullyConnectedOp, _fully_connected),
        one(tfl.BatchMatmulOp, _batch_matmul),
        one(tfl.SoftmaxOp, _softmax),
        one(tfl.CumsumOp, _cumsum),
        one(tfl.ReshapeOp, _reshape),
        one(tfl.TransposeOp, _transpose),
        one(tfl.ConcatenationOp, _concatenation),
        several(tfl.SplitOp, _split),
        one(tfl.StridedSliceOp, _strided_slice),
        one(tfl.PadV2Op, _pad),
        one(tfl.GatherOp, _gather),
        one(tfl.BroadcastToOp, _broadcast_to),
        one(tfl.Conv2dOp, _conv),
        one(tfl.DepthwiseConv2dOp, _depthwise),
        one(tfl.AveragePool2dOp, _pool),
        one(tfl.MaxPool2dOp, _pool),
        one(tfl.PseudoQconstOp, _qconst),
        one(tfl.QuantizeOp, quantize),
        one(tfl.DequantizeOp, _dequantize),
    ]
)
"""The meaning of each op on reals, or of moving codes."""


def _either(real: Meaning, coded: Meaning) -> Meaning:
    """One meaning of an op on reals, another where its result has codes."""

    def meaning(op: Operation, operands: Sequence[Array], frame: Frame) -> Sequence[Array]:
        chosen = real if encoding(op.results[0]) is None else coded
        return chosen(op, operands, frame)

    return meaning


MEANINGS: Mapping[str, Meaning] = REAL | {
    name: _either(REAL[name], coded) for name, coded in CODED.items()
}
"""The meaning of each op by its name."""
