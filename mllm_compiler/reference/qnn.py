"""Meanings of the `qnn` dialect: what each operator of QNN computes, on NumPy arrays.

Halves are computed in single precision and rounded once; codes are what they mean, computed and
rounded to the codes of the result, which saturate; RmsNorm is cut to them, as HTP's is. HTP's own
sums have other roundings in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects import qnn
from mllm_compiler.dialects.calls import ints
from mllm_compiler.dialects.mllm import UnaryKind
from mllm_compiler.dialects.qnn import QnnOp
from mllm_compiler.dialects.qnn.base import CODES
from mllm_compiler.dialects.qnn.linalg import NormOp, ReduceOp
from mllm_compiler.dialects.qnn.vision import ConvolutionOp, PoolOp
from mllm_compiler.dialects.types import bounds_of, dtype_of, element_of, extents, is_float
from mllm_compiler.reference.executor import Array, Frame, Meaning
from mllm_compiler.reference.mllm_elementwise import apply_unary
from mllm_compiler.reference.mllm_linear import linear, softmax

Compute = Callable[[Any, Sequence[Array]], Any]
"""The result of an op from what its operands mean, in single precision where they are reals."""

UNARY: dict[type[QnnOp], UnaryKind] = {
    qnn.ElementWiseAbsOp: UnaryKind.ABS,
    qnn.ElementWiseCeilOp: UnaryKind.CEIL,
    qnn.ElementWiseCosOp: UnaryKind.COS,
    qnn.ElementWiseExpOp: UnaryKind.EXP,
    qnn.ElementWiseFloorOp: UnaryKind.FLOOR,
    qnn.ElementWiseLogOp: UnaryKind.LOG,
    qnn.ElementWiseNegOp: UnaryKind.NEG,
    qnn.ElementWiseNotOp: UnaryKind.NOT,
    qnn.ElementWiseRoundOp: UnaryKind.ROUND,
    qnn.ElementWiseRsqrtOp: UnaryKind.RSQRT,
    qnn.ElementWiseSignOp: UnaryKind.SIGN,
    qnn.ElementWiseSinOp: UnaryKind.SIN,
    qnn.ElementWiseSquareRootOp: UnaryKind.SQRT,
    qnn.GeluOp: UnaryKind.GELU,
    qnn.HardSwishOp: UnaryKind.HARD_SWISH,
    qnn.ReluOp: UnaryKind.RELU,
    qnn.SigmoidOp: UnaryKind.SIGMOID,
    qnn.TanhOp: UnaryKind.TANH,
}

BINARY: dict[type[QnnOp], Callable[..., Any]] = {
    qnn.ElementWiseAddOp: np.add,
    qnn.ElementWiseSubtractOp: np.subtract,
    qnn.ElementWiseMultiplyOp: np.multiply,
    qnn.ElementWiseDivideOp: np.divide,
    qnn.ElementWiseMaximumOp: np.maximum,
    qnn.ElementWiseMinimumOp: np.minimum,
    qnn.ElementWisePowerOp: np.power,
    qnn.ElementWiseAndOp: np.logical_and,
    qnn.ElementWiseOrOp: np.logical_or,
    qnn.ElementWiseEqualOp: np.equal,
    qnn.ElementWiseNotEqualOp: np.not_equal,
    qnn.ElementWiseLessOp: np.less,
    qnn.ElementWiseLessEqualOp: np.less_equal,
    qnn.ElementWiseGreaterOp: np.greater,
    qnn.ElementWiseGreaterEqualOp: np.greater_equal,
}

REDUCE: dict[type[QnnOp], Callable[..., Any]] = {
    qnn.ReduceMeanOp: np.mean,
    qnn.ReduceSumOp: np.sum,
    qnn.ReduceMaxOp: np.max,
    qnn.ReduceMinOp: np.min,
}


def decoded(value: SSAValue, array: Array) -> Array:
    """What an operand means: halves in single precision, codes as reals."""
    owner, element = value.owner, element_of(value)
    if isinstance(owner, qnn.StaticTensorOp):
        return array
    if is_float(element):
        return array.astype(np.float32)
    if str(element) not in CODES or not isinstance(owner, QnnOp) or owner.scale is None:
        return array
    scale = np.float32(owner.scale.value.data)
    return (array.astype(np.float32) - np.float32(owner.zero)) * scale


def encoded(op: QnnOp, y: Array) -> Array:
    """A result in the element type of an op; codes are rounded, or cut, and saturate."""
    element = element_of(op.y)
    if op.scale is None or str(element) not in CODES:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(y).astype(dtype_of(element))
    rounding = np.floor if isinstance(op, qnn.RmsNormOp) else np.rint
    codes = rounding(y / np.float32(op.scale.value.data)) + op.zero
    return np.clip(codes, *bounds_of(element)).astype(dtype_of(element))


def _meaning(kind: type[QnnOp], compute: Compute) -> tuple[str, Meaning]:
    """The table entry of an op that computes on what its operands mean."""

    def meaning(op: Operation, operands: Sequence[Array], frame: Frame) -> Sequence[Array]:
        reals = [decoded(v, a) for v, a in zip(op.operands, operands, strict=True)]
        with np.errstate(all="ignore"):
            return (encoded(cast(QnnOp, op), compute(op, reals)),)

    return kind.name, meaning


def _unary(op: QnnOp, operands: Sequence[Array]) -> Array:
    return apply_unary(UNARY[type(op)], operands[0])


def _binary(op: QnnOp, operands: Sequence[Array]) -> Any:
    return BINARY[type(op)](*operands)


def _select(op: QnnOp, operands: Sequence[Array]) -> Array:
    return np.where(*operands)


def _same(op: QnnOp, operands: Sequence[Array]) -> Array:
    return operands[0]


def _fully_connected(op: qnn.FullyConnectedOp, operands: Sequence[Array]) -> Array:
    x, weights, *bias = operands
    return linear(x, weights, bias[0] if bias else None)


def _mat_mul(op: qnn.MatMulOp, operands: Sequence[Array]) -> Array:
    a, b = operands
    a = a.swapaxes(-1, -2) if op.transpose_in0 else a
    b = b.swapaxes(-1, -2) if op.transpose_in1 else b
    return np.matmul(a, b)


def _softmax(op: qnn.SoftmaxOp, operands: Sequence[Array]) -> Array:
    return softmax(operands[0] * np.float32(op.beta.value.data), op.axis.value.data)


def _norm(op: NormOp, operands: Sequence[Array]) -> Array:
    x, gamma, *beta = operands
    if isinstance(op, qnn.LayerNormOp):
        x = x - x.mean(-1, keepdims=True)
    square = np.square(x).mean(-1, keepdims=True)
    y = x / np.sqrt(square + np.float32(op.epsilon.value.data)) * gamma
    return y + beta[0] if beta else y


def _rotary_embedding(op: qnn.RotaryEmbeddingOp, operands: Sequence[Array]) -> Array:
    x, cos, sin = operands[0], operands[1][:, None], operands[2][:, None]
    half = x.shape[-1] // 2
    sides = (x[..., ::2], x[..., 1::2]) if op.interleaved else (x[..., :half], x[..., half:])
    turned = (sides[0] * cos - sides[1] * sin, sides[1] * cos + sides[0] * sin)
    if op.interleaved:
        return np.stack(turned, -1).reshape(x.shape)
    return np.concatenate(turned, -1)


def _reduce(op: ReduceOp, operands: Sequence[Array]) -> Any:
    axes, keeps = tuple(ints(op.axes)), bool(op.keep_dims)
    return REDUCE[type(op)](operands[0], axis=axes, keepdims=keeps)


def _reshape(op: qnn.ReshapeOp, operands: Sequence[Array]) -> Array:
    return operands[0].reshape(extents(op.y))


def _transpose(op: qnn.TransposeOp, operands: Sequence[Array]) -> Array:
    return np.ascontiguousarray(operands[0].transpose(ints(op.perm)))


def _concat(op: qnn.ConcatOp, operands: Sequence[Array]) -> Array:
    return np.concatenate(operands, op.axis.value.data)


def _strided_slice(op: qnn.StridedSliceOp, operands: Sequence[Array]) -> Array:
    return operands[0][tuple(slice(*side) for side in op.sides())]


def _gather(op: qnn.GatherOp, operands: Sequence[Array]) -> Array:
    return np.take(operands[0], operands[1], axis=op.axis.value.data)


def _tile(op: qnn.TileOp, operands: Sequence[Array]) -> Array:
    return np.tile(operands[0], ints(op.multiples))


def _conv(op: ConvolutionOp, operands: Sequence[Array]) -> Array:
    x, weights, *bias = operands
    high, wide, depth, n = weights.shape
    patches = _windows(op, x, (high, wide), ints(op.dilation), 0.0)
    groups = op.group.value.data if isinstance(op, qnn.Conv2dOp) else x.shape[3]
    apart = weights.reshape(high, wide, depth, groups, n // groups)
    seen = patches.reshape(*patches.shape[:3], high, wide, groups, depth)
    y = np.einsum("bijhwgc,hwcgn->bijgn", seen, apart, optimize=True)
    y = y.reshape(extents(op.y))
    return y + bias[0] if bias else y


def _pool(op: PoolOp, operands: Sequence[Array]) -> Array:
    largest = isinstance(op, qnn.PoolMax2dOp)
    counted = isinstance(op, qnn.PoolAvg2dOp) and bool(op.count_pad_for_edges)
    fill = -np.inf if largest else 0.0 if counted else np.nan
    patches = _windows(op, operands[0], ints(op.filter_size), (1, 1), fill)
    return patches.max((3, 4)) if largest else np.nanmean(patches, (3, 4))


def _windows(
    op: ConvolutionOp | PoolOp,
    x: Array,
    kernel: Sequence[int],
    dilation: Sequence[int],
    fill: float,
) -> Array:
    """The windows of an image, [B, H', W', h, w, C]."""
    pads, stride = ints(op.pad_amount), ints(op.stride)
    x = np.pad(x, [(0, 0), tuple(pads[:2]), tuple(pads[2:]), (0, 0)], constant_values=fill)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    seen = np.lib.stride_tricks.sliding_window_view(x, spans, (1, 2))
    seen = seen[:, :: stride[0], :: stride[1], :, :: dilation[0], :: dilation[1]]
    return seen.transpose(0, 1, 2, 4, 5, 3)


def _static_tensor(op: Operation, operands: Sequence[Array], frame: Frame) -> Sequence[Array]:
    """Reals, whatever the type: what reads them finds what they mean."""
    assert isinstance(op, qnn.StaticTensorOp)
    codes, scales = (array.astype(np.float32) for array in operands)
    axis, size = op.axis.value.data, op.block_size.value.data
    if size:
        scales = np.repeat(scales, size, 1)
    else:
        scales = scales.reshape([-1 if i == axis else 1 for i in range(codes.ndim)])
    return ((codes - np.float32(op.zero)) * scales,)


MEANINGS: Mapping[str, Meaning] = dict(
    [
        *(_meaning(kind, _unary) for kind in UNARY),
        *(_meaning(kind, _binary) for kind in BINARY),
        *(_meaning(kind, _reduce) for kind in REDUCE),
        *(
            _meaning(kind, _same)
            for kind in (qnn.CastOp, qnn.QuantizeOp, qnn.DequantizeOp, qnn.ConvertOp)
        ),
        _meaning(qnn.ElementWiseSelectOp, _select),
        _meaning(qnn.FullyConnectedOp, _fully_connected),
        _meaning(qnn.MatMulOp, _mat_mul),
        _meaning(qnn.SoftmaxOp, _softmax),
        _meaning(qnn.RmsNormOp, _norm),
        _meaning(qnn.LayerNormOp, _norm),
        _meaning(qnn.RotaryEmbeddingOp, _rotary_embedding),
        _meaning(qnn.ReshapeOp, _reshape),
        _meaning(qnn.TransposeOp, _transpose),
        _meaning(qnn.ConcatOp, _concat),
        _meaning(qnn.StridedSliceOp, _strided_slice),
        _meaning(qnn.GatherOp, _gather),
        _meaning(qnn.TileOp, _tile),
        _meaning(qnn.Conv2dOp, _conv),
        _meaning(qnn.DepthWiseConv2dOp, _conv),
        _meaning(qnn.PoolAvg2dOp, _pool),
        _meaning(qnn.PoolMax2dOp, _pool),
        (qnn.StaticTensorOp.name, _static_tensor),
    ]
)
"""The meaning of each op by its name."""
