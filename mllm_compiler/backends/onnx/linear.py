"""Weights, products, look-ups, normalisations and reductions as nodes of the standard."""

from __future__ import annotations

from typing import Final

from xdsl.ir import Attribute

from mllm_compiler.backends.onnx.builder import Builder, Value
from mllm_compiler.backends.onnx.elementwise import apply
from mllm_compiler.backends.onnx.entry import Inputs, one
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
from mllm_compiler.dialects.types import element_of

REDUCE: Final = {
    ReduceKind.SUM: "ReduceSum",
    ReduceKind.MEAN: "ReduceMean",
    ReduceKind.MAX: "ReduceMax",
    ReduceKind.MIN: "ReduceMin",
    ReduceKind.PROD: "ReduceProd",
    ReduceKind.L1: "ReduceL1",
    ReduceKind.L2: "ReduceL2",
    ReduceKind.SUM_SQUARE: "ReduceSumSquare",
    ReduceKind.LOG_SUM: "ReduceLogSum",
    ReduceKind.LOG_SUM_EXP: "ReduceLogSumExp",
}
"""The operator of each reduction."""

AXES_ARE_INPUTS: Final = 18
"""The opset since when all reductions take their axes as an input; ReduceSum always has here."""

RMS_NORM_SINCE: Final = 23


def _weight(op: WeightOp, b: Builder, inputs: Inputs) -> Value:
    name = "weight" if op.weight_name is None else op.weight_name.data
    return b.weight(op.value, name)


def _constant(op: ConstantOp, b: Builder, inputs: Inputs) -> Value:
    return b.constant(array_of(op.value))


def product(b: Builder, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """X weight^T + bias."""
    turned = b.once(("turned", weight), lambda: b.node("Transpose", weight, perm=[1, 0]))
    y = b.node("MatMul", x, turned)
    return y if bias is None else b.node("Add", y, bias)


def _linear(op: LinearOp, b: Builder, inputs: Inputs) -> Value:
    return product(b, *inputs)


def _matmul(op: MatmulOp, b: Builder, inputs: Inputs) -> Value:
    return b.node("MatMul", *inputs)


def _embedding(op: EmbeddingOp, b: Builder, inputs: Inputs) -> Value:
    return b.node("Gather", *inputs, axis=0)


def _gather(op: GatherOp, b: Builder, inputs: Inputs) -> Value:
    return b.node("Gather", *inputs, axis=op.axis.value.data)


def _gated_mlp(op: GatedMlpOp, b: Builder, inputs: Inputs) -> Value:
    x, gate, up, down = inputs
    kind = UnaryKind(op.activation.data)
    opened = apply(b, kind, product(b, x, gate), element_of(op.x))
    return product(b, b.node("Mul", opened, product(b, x, up)), down)


def _mlp(op: MlpOp, b: Builder, inputs: Inputs) -> Value:
    x, w1, w2, *biases = inputs
    b1 = biases.pop(0) if op.b1 is not None else None
    b2 = biases.pop(0) if op.b2 is not None else None
    hidden = apply(b, UnaryKind(op.activation.data), product(b, x, w1, b1), element_of(op.x))
    return product(b, hidden, w2, b2)


def _layer_norm(op: LayerNormOp, b: Builder, inputs: Inputs) -> Value:
    epsilon = op.epsilon.value.data
    if op.weight is not None:
        return b.node("LayerNormalization", *inputs, axis=-1, epsilon=epsilon)
    x, *bias = inputs
    centred = b.node("Sub", x, _mean(b, x))
    y = _over_root(b, centred, epsilon, element_of(op.x))
    return b.node("Add", y, bias[0]) if bias else y


def _rms_norm(op: RmsNormOp, b: Builder, inputs: Inputs) -> Value:
    x, weight = inputs
    epsilon = op.epsilon.value.data
    if b.opset >= RMS_NORM_SINCE:
        return b.node("RMSNormalization", x, weight, axis=-1, epsilon=epsilon)
    return b.node("Mul", _over_root(b, x, epsilon, element_of(op.x)), weight)


def _over_root(b: Builder, x: Value, epsilon: float, element: Attribute) -> Value:
    """X over the root of its mean square plus epsilon."""
    square = _mean(b, b.node("Mul", x, x))
    return b.node("Div", x, b.node("Sqrt", b.node("Add", square, b.scalar(epsilon, element))))


def _mean(b: Builder, x: Value) -> Value:
    return reduce(b, ReduceKind.MEAN, x, (-1,), keepdims=True)


def reduce(
    b: Builder, kind: ReduceKind, x: Value, axes: tuple[int, ...], *, keepdims: bool
) -> Value:
    """A reduction of a value."""
    if not axes:
        return b.node(REDUCE[kind], x, keepdims=int(keepdims), noop_with_empty_axes=1)
    if b.opset >= AXES_ARE_INPUTS or kind is ReduceKind.SUM:
        return b.node(REDUCE[kind], x, b.integers(*axes), keepdims=int(keepdims))
    return b.node(REDUCE[kind], x, axes=axes, keepdims=int(keepdims))


def _softmax(op: SoftmaxOp, b: Builder, inputs: Inputs) -> Value:
    return b.node("Softmax", *inputs, axis=op.axis.value.data)


def _reduce(op: ReduceOp, b: Builder, inputs: Inputs) -> Value:
    return reduce(b, op.kind.data, inputs[0], op.axis_list, keepdims=bool(op.keepdims))


EXPORTERS = dict(
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
"""Op class to exporter."""
