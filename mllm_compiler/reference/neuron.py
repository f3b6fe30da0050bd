"""Meanings of the `neuron` dialect: what NNAPI says that each operation computes.

Real numbers in single precision; a device may round each value to a half. A product with weights of
codes is one with the reals that they stand for. Codes are what they mean, computed and rounded to
the codes of the result, which saturate; a device may round in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects import neuron
from mllm_compiler.dialects.mllm import UnaryKind
from mllm_compiler.dialects.neuron import NeuronOp
from mllm_compiler.dialects.neuron.vision import PoolOp, WindowedOp
from mllm_compiler.dialects.tfl.encoded import encoding
from mllm_compiler.dialects.types import bounds_of, dtype_of, element_of, extents
from mllm_compiler.reference.entry import one, several
from mllm_compiler.reference.executor import Array, Frame, Meaning
from mllm_compiler.reference.mllm_elementwise import apply_unary
from mllm_compiler.reference.mllm_linear import linear, softmax
from mllm_compiler.reference.tfl_coded import constant_array


def _squared_difference(a: Array, b: Array) -> Array:
    return np.square(np.subtract(a, b))


UNARY: dict[type[NeuronOp], UnaryKind] = {
    neuron.AbsOp: UnaryKind.ABS,
    neuron.GeluOp: UnaryKind.GELU_TANH,
    neuron.HardSwishOp: UnaryKind.HARD_SWISH,
    neuron.LogisticOp: UnaryKind.SIGMOID,
    neuron.ReluOp: UnaryKind.RELU,
    neuron.RsqrtOp: UnaryKind.RSQRT,
    neuron.SqrtOp: UnaryKind.SQRT,
    neuron.TanhOp: UnaryKind.TANH,
}

BINARY: dict[type[NeuronOp], Callable[..., Any]] = {
    neuron.AddOp: np.add,
    neuron.DivOp: np.divide,
    neuron.MulOp: np.multiply,
    neuron.SubOp: np.subtract,
    neuron.MaximumOp: np.maximum,
    neuron.MinimumOp: np.minimum,
    neuron.SquaredDifferenceOp: _squared_difference,
    neuron.GreaterOp: np.greater,
    neuron.LessOp: np.less,
}

REDUCE: dict[type[NeuronOp], Callable[..., Any]] = {
    neuron.MeanOp: np.mean,
    neuron.ReduceSumOp: np.sum,
    neuron.ReduceMaxOp: np.max,
}

BOUNDS: Mapping[str, tuple[float, float]] = {
    "NONE": (-np.inf, np.inf),
    "RELU": (0, np.inf),
    "RELU1": (-1, 1),
    "RELU6": (0, 6),
}
"""What a fused activation clips to."""


def _fused(op: NeuronOp, y: Array) -> Array:
    fuse = op.properties.get("fuse")
    word = "NONE" if fuse is None else cast(Any, fuse).data
    return y if word == "NONE" else np.clip(y, *BOUNDS[word]).astype(y.dtype)


def _unary(op: NeuronOp, operands: Sequence[Array], frame: Frame) -> Array:
    return apply_unary(UNARY[type(op)], operands[0])


def _binary(op: NeuronOp, operands: Sequence[Array], frame: Frame) -> Array:
    with np.errstate(all="ignore"):
        return _fused(op, BINARY[type(op)](*operands))


def _converted(op: neuron.CastOp, operands: Sequence[Array], frame: Frame) -> Array:
    return operands[0].astype(dtype_of(element_of(op.y)))


def _codes(op: neuron.SymmPerChannelOp, operands: Sequence[Array], frame: Frame) -> Array:
    codes, scale = operands
    dims = [1] * codes.ndim
    dims[op.channel_dim.value.data] = scale.size
    return codes.astype(np.float32) * scale.astype(np.float32).reshape(dims)


def _same(op: neuron.QuantizeOp, operands: Sequence[Array], frame: Frame) -> Array:
    return operands[0]


def _dequantize(op: neuron.DequantizeOp, operands: Sequence[Array], frame: Frame) -> Array:
    return operands[0].astype(np.float32)


def _fully_connected(op: neuron.FullyConnectedOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, weights, bias = operands
    return _fused(op, linear(x, weights, _bias(op, bias, frame))).reshape(extents(op.y))


def _bias(op: Any, bias: Array, frame: Frame) -> Array:
    """A bias as reals: whole numbers are steps of the scales of x and of each channel."""
    maker, given = op.operands[1].owner, encoding(op.x)
    if bias.dtype != np.int32 or given is None or not isinstance(maker, neuron.SymmPerChannelOp):
        return bias
    return bias * np.float32(given[0]) * constant_array(maker.scale, frame.store).astype(np.float32)


def _batch_matmul(op: neuron.BatchMatmulOp, operands: Sequence[Array], frame: Frame) -> Array:
    a, b = operands
    a = a.swapaxes(-1, -2) if op.adj_x else a
    return np.matmul(a, b.swapaxes(-1, -2) if op.adj_y else b)


def _softmax(op: neuron.SoftmaxOp, operands: Sequence[Array], frame: Frame) -> Array:
    return softmax(operands[0] * np.float32(op.beta.value.data), -1)


def _reduce(op: NeuronOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, axes = operands
    dropped, dims = tuple(int(axis) for axis in axes.reshape(-1)), extents(op.results[0])
    return np.asarray(REDUCE[type(op)](x, axis=dropped), x.dtype).reshape(dims)


def _reshape(op: neuron.ReshapeOp, operands: Sequence[Array], frame: Frame) -> Array:
    return operands[0].reshape([int(n) for n in operands[1]])


def _transpose(op: neuron.TransposeOp, operands: Sequence[Array], frame: Frame) -> Array:
    return np.ascontiguousarray(operands[0].transpose([int(p) for p in operands[1]]))


def _concatenation(op: neuron.ConcatenationOp, operands: Sequence[Array], frame: Frame) -> Array:
    return np.concatenate(operands, op.axis.value.data)


def _split(op: neuron.SplitOp, operands: Sequence[Array], frame: Frame) -> Sequence[Array]:
    return np.split(operands[0], op.num_splits.value.data, int(operands[1][0]))


def _strided_slice(op: neuron.StridedSliceOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, *sides = operands
    return x[tuple(slice(int(b), int(e), int(s)) for b, e, s in zip(*sides, strict=True))]


def _pad(op: neuron.PadV2Op, operands: Sequence[Array], frame: Frame) -> Array:
    x, paddings, value = operands
    around = [(int(before), int(after)) for before, after in paddings]
    return np.pad(x, around, constant_values=value.item())


def _conv(op: neuron.Conv2dOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, filter, bias = operands
    n, high, wide, _ = filter.shape
    windows = _windows(op, x, (high, wide), 0.0)
    rows = windows.reshape(*windows.shape[:3], -1)
    products = linear(rows, filter.transpose(0, 3, 1, 2).reshape(n, -1), _bias(op, bias, frame))
    return _fused(op, products)


def _depthwise(op: neuron.DepthwiseConv2dOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, filter, bias = operands
    _, high, wide, n = filter.shape
    windows = np.repeat(_windows(op, x, (high, wide), 0.0), op.multiplier.value.data, axis=3)
    sums = np.einsum("bijchw,hwc->bijc", windows, filter.reshape(high, wide, n))
    return _fused(op, sums + _bias(op, bias, frame))


def _pool(op: PoolOp, operands: Sequence[Array], frame: Frame) -> Array:
    largest = isinstance(op, neuron.MaxPool2dOp)
    windows = _windows(op, operands[0], op.kernel(), -np.inf if largest else np.nan)
    y = (np.max if largest else np.nanmean)(windows, axis=(4, 5))
    return _fused(op, y.astype(operands[0].dtype))


def _windows(op: WindowedOp, x: Array, kernel: tuple[int, int], fill: float) -> Array:
    """The windows of an image, [B, H', W', C, h, w]; what is around it is `fill`."""
    strides, dilations, counts = op.strides(), op.dilations(), op.windows(kernel)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    around = [(0, 0)]
    for axis in (0, 1):
        reach = (counts[axis] - 1) * strides[axis] + spans[axis]
        missing = max(0, reach - x.shape[1 + axis]) if op.padding.data == "SAME" else 0
        around.append((missing // 2, missing - missing // 2))
    image = np.pad(x, [*around, (0, 0)], constant_values=fill)
    found = np.lib.stride_tricks.sliding_window_view(image, spans, axis=(1, 2))
    (down, right), (rows, columns) = strides, dilations
    return found[:, ::down, ::right, :, ::rows, ::columns]


def _on_codes(meaning: Meaning) -> Meaning:
    """The meaning of an op whose operands and results may be codes."""

    def run(op: Operation, operands: Sequence[Array], frame: Frame) -> Sequence[Array]:
        reals = [_meant(v, array) for v, array in zip(op.operands, operands, strict=True)]
        made = meaning(op, reals, frame)
        return [_coded(v, array) for v, array in zip(op.results, made, strict=True)]

    return run


def _meant(value: SSAValue, array: Array) -> Array:
    given = encoding(value)
    if given is None:
        return array
    return (array.astype(np.float32) - np.float32(given[1])) * np.float32(given[0])


def _coded(value: SSAValue, array: Array) -> Array:
    given, element = encoding(value), element_of(value)
    if given is None:
        return array
    codes = np.rint(array / np.float32(given[0])) + given[1]
    return np.clip(codes, *bounds_of(element)).astype(dtype_of(element))


def _constant(op: neuron.QuantConstantOp, operands: Sequence[Array], frame: Frame) -> Array:
    return operands[0]


OPERATIONS: Mapping[str, Meaning] = dict(
    [
        *(one(kind, _unary) for kind in UNARY),
        *(one(kind, _binary) for kind in BINARY),
        *(one(kind, _reduce) for kind in REDUCE),
        *(one(kind, _pool) for kind in (neuron.AveragePool2dOp, neuron.MaxPool2dOp)),
        one(neuron.CastOp, _converted),
        one(neuron.QuantizeOp, _same),
        one(neuron.DequantizeOp, _dequantize),
        one(neuron.FullyConnectedOp, _fully_connected),
        one(neuron.BatchMatmulOp, _batch_matmul),
        one(neuron.SoftmaxOp, _softmax),
        one(neuron.ReshapeOp, _reshape),
        one(neuron.TransposeOp, _transpose),
        one(neuron.ConcatenationOp, _concatenation),
        several(neuron.SplitOp, _split),
        one(neuron.StridedSliceOp, _strided_slice),
        one(neuron.PadV2Op, _pad),
        one(neuron.Conv2dOp, _conv),
        one(neuron.DepthwiseConv2dOp, _depthwise),
    ]
)
"""The meaning of each operation, on reals, by its name."""

MEANINGS: Mapping[str, Meaning] = {
    **{name: _on_codes(meaning) for name, meaning in OPERATIONS.items()},
    **dict([one(neuron.SymmPerChannelOp, _codes), one(neuron.QuantConstantOp, _constant)]),
}
"""The meaning of each op by its name."""
