"""Losses of ONNX as `mllm` ops: the score of the target class is chosen by comparison.

    loss[n, d..] = -weight[target[n, d..]] * scores[n, target[n, d..], d..]

becomes a select over all classes where class equals target, and a sum over them.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import i64
from xdsl.ir import SSAValue

from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import (
    BinaryKind,
    BroadcastOp,
    CastOp,
    CompareKind,
    CompareOp,
    IotaOp,
    ReduceKind,
    ReduceOp,
    SelectOp,
    UnaryKind,
    UnaryOp,
)
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.dialects.types import element_of, rank_of, shape_of
from mllm_compiler.passes.lift_onnx.emit import Converter, Emit


def log_softmax(emit: Emit, x: SSAValue, axis: int) -> SSAValue:
    """X minus the logarithm of the sum of exp(x) along an axis."""
    top = emit(ReduceOp(ReduceKind.MAX, x, [axis], keepdims=True))
    below = emit.binary(BinaryKind.SUB, x, top)
    raised = emit(UnaryOp(UnaryKind.EXP, below))
    total = emit(ReduceOp(ReduceKind.SUM, raised, [axis], keepdims=True))
    return emit.binary(BinaryKind.SUB, below, emit(UnaryOp(UnaryKind.LOG, total)))


def _negative_log_likelihood(op: OnnxOp, emit: Emit) -> SSAValue | None:
    scores, target = op.operands[:2]
    return _loss(op, emit, scores, target)


def _cross_entropy(op: OnnxOp, emit: Emit) -> Sequence[SSAValue] | None:
    logs = log_softmax(emit, op.operands[0], 1)
    made = _loss(op, emit, logs, op.operands[1])
    return None if made is None else [made, logs]


def _loss(op: OnnxOp, emit: Emit, scores: SSAValue, target: SSAValue) -> SSAValue | None:
    """The loss of log-probabilities [N, C, d..] and classes [N, d..], reduced as asked for."""
    dims, element = shape_of(scores), element_of(scores)
    classes, ignored = dims[1], op.attribute("ignore_index")
    if any(d.unknown for d in dims) or rank_of(target) != len(dims) - 1:
        return None
    wide = target if element_of(target) == i64 else emit(CastOp(target, i64))
    apart = emit.reshape(wide, (dims[0], 1, *dims[2:]))
    column = emit.reshape(emit(IotaOp(classes)), (classes, *[1] * (len(dims) - 2)))
    chosen = emit(CompareOp(CompareKind.EQ, apart, column))
    zero = emit.scalar(0.0, element)
    picked = _over_classes(emit, emit(SelectOp(chosen, scores, zero)))
    weight = _weights(op, emit, chosen, zero, dims)
    if isinstance(ignored, int):
        kept = emit(CompareOp(CompareKind.NE, wide, emit.scalar(ignored, i64)))
        one = emit.scalar(1.0, element)
        weight = emit(SelectOp(kept, one if weight is None else weight, zero))
    loss = emit(UnaryOp(UnaryKind.NEG, picked))
    loss = loss if weight is None else emit.binary(BinaryKind.MUL, loss, weight)
    return _reduced(op, emit, loss, weight)


def _over_classes(emit: Emit, x: SSAValue) -> SSAValue:
    return emit(ReduceOp(ReduceKind.SUM, x, [1], keepdims=False))


def _weights(
    op: OnnxOp, emit: Emit, chosen: SSAValue, zero: SSAValue, dims: Sequence[Dim]
) -> SSAValue | None:
    """The weight of each target's class, [N, d..]; None where all are 1."""
    weight = op.input(2)
    if weight is None:
        return None
    column = emit.reshape(weight, (dims[1], *[1] * (len(dims) - 2)))
    return _over_classes(emit, emit(SelectOp(chosen, column, zero)))


def _reduced(op: OnnxOp, emit: Emit, loss: SSAValue, weight: SSAValue | None) -> SSAValue:
    reduction, axes = op.attribute("reduction"), list(range(rank_of(loss)))
    if reduction == "none":
        return loss
    if reduction == "sum":
        return emit(ReduceOp(ReduceKind.SUM, loss, axes, keepdims=False))
    if weight is None:
        return emit(ReduceOp(ReduceKind.MEAN, loss, axes, keepdims=False))
    if shape_of(weight) != shape_of(loss):
        weight = emit(BroadcastOp(weight, shape_of(loss)))
    total = emit(ReduceOp(ReduceKind.SUM, loss, axes, keepdims=False))
    share = emit(ReduceOp(ReduceKind.SUM, weight, axes, keepdims=False))
    return emit.binary(BinaryKind.DIV, total, share)


CONVERTERS: dict[str, Converter] = {
    "NegativeLogLikelihoodLoss": _negative_log_likelihood,
    "SoftmaxCrossEntropyLoss": _cross_entropy,
}
"""Operator name to converter."""
