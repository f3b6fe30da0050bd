"""Products, normalisations and reductions of ONNX as `mllm` ops."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.ir import SSAValue

from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import (
    BinaryKind,
    CumsumOp,
    LayerNormOp,
    LinearOp,
    MatmulOp,
    ReduceKind,
    ReduceOp,
    RmsNormOp,
    SoftmaxOp,
    TransposeOp,
    UnaryKind,
    UnaryOp,
)
from mllm_compiler.dialects.mllm.contract import normal_axis
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.dialects.types import element_of, is_float, rank_of, shape_of
from mllm_compiler.passes.lift_onnx.emit import Converter, Emit, static
from mllm_compiler.passes.lift_onnx.losses import log_softmax

REDUCE = {
    "ReduceSum": ReduceKind.SUM,
    "ReduceMean": ReduceKind.MEAN,
    "ReduceMax": ReduceKind.MAX,
    "ReduceMin": ReduceKind.MIN,
    "ReduceProd": ReduceKind.PROD,
    "ReduceL1": ReduceKind.L1,
    "ReduceL2": ReduceKind.L2,
    "ReduceSumSquare": ReduceKind.SUM_SQUARE,
    "ReduceLogSum": ReduceKind.LOG_SUM,
    "ReduceLogSumExp": ReduceKind.LOG_SUM_EXP,
}
"""Operators that are a reduction."""


def integer_attribute(op: OnnxOp, name: str, default: int = 0) -> int:
    """An integer attribute of an operator, or the schema's default, or `default`."""
    value = op.attribute(name)
    return value if isinstance(value, int) else default


def integers_attribute(op: OnnxOp, name: str) -> list[int] | None:
    """A list of integers of an operator; None where it is absent."""
    value = op.attribute(name)
    if not isinstance(value, list | tuple):
        return None
    return [int(v) for v in value if isinstance(v, int)]


def number_attribute(op: OnnxOp, name: str, default: float) -> float:
    """A number of an operator, or the schema's default, or `default`."""
    value = op.attribute(name)
    return float(value) if isinstance(value, int | float) else default


def _matmul(op: OnnxOp, emit: Emit) -> SSAValue | None:
    a, b = op.operands
    if not rank_of(a) or not rank_of(b):
        return None
    left = emit.reshape(a, [1, *shape_of(a)]) if rank_of(a) == 1 else a
    right = emit.reshape(b, [*shape_of(b), 1]) if rank_of(b) == 1 else b
    return emit.reshape(emit(MatmulOp(left, right)), emit.result_dims)


def _gemm(op: OnnxOp, emit: Emit) -> SSAValue:
    a, b = op.operands[:2]
    bias = op.input(2)
    alpha, beta = number_attribute(op, "alpha", 1.0), number_attribute(op, "beta", 1.0)
    if integer_attribute(op, "transA"):
        a = emit(TransposeOp(a, [1, 0]))
    plain = is_float(element_of(a)) and alpha == 1.0
    if integer_attribute(op, "transB") and plain:
        joined = bias is not None and rank_of(bias) == 1 and beta == 1.0
        joined = joined and bias is not None and shape_of(bias) == shape_of(b)[:1]
        y = emit(LinearOp(a, b, bias if joined else None))
        bias = None if joined else bias
    else:
        if integer_attribute(op, "transB"):
            b = emit(TransposeOp(b, [1, 0]))
        y = emit(MatmulOp(a, b))
        y = y if alpha == 1.0 else emit.binary(BinaryKind.MUL, y, alpha)
    if bias is None:
        return y
    bias = bias if beta == 1.0 else emit.binary(BinaryKind.MUL, bias, beta)
    return emit.binary(BinaryKind.ADD, y, bias)


def _softmax(op: OnnxOp, emit: Emit) -> SSAValue | None:
    x = op.operands[0]
    if (op.opset or 13) >= 13:
        return emit(SoftmaxOp(x, integer_attribute(op, "axis", -1)))
    axis = normal_axis(integer_attribute(op, "axis", 1), rank_of(x))
    if axis == rank_of(x) - 1:
        return emit(SoftmaxOp(x, axis))
    rows = _flat(x, axis, emit)
    return None if rows is None else emit.reshape(emit(SoftmaxOp(rows, 1)), shape_of(x))


def _flat(x: SSAValue, axis: int, emit: Emit) -> SSAValue | None:
    """X as a matrix: the dims before axis, and those from it on."""
    dims = shape_of(x)
    if any(d.unknown for d in dims):
        return None
    rows, columns = Dim.const(1), Dim.const(1)
    for at, dim in enumerate(dims):
        rows, columns = (rows * dim, columns) if at < axis else (rows, columns * dim)
    return emit.reshape(x, [rows, columns])


def _log_softmax(op: OnnxOp, emit: Emit) -> SSAValue | None:
    x, axis = op.operands[0], integer_attribute(op, "axis", -1)
    if (op.opset or 13) < 13 and normal_axis(axis, rank_of(x)) != rank_of(x) - 1:
        return None
    return log_softmax(emit, x, normal_axis(axis, rank_of(x)))


def reduced_axes(op: OnnxOp) -> list[int] | None:
    """The axes that a reduction folds; None where they are not constant."""
    rank = rank_of(op.operands[0])
    given = integers_attribute(op, "axes")
    if given is None and op.input(1) is not None:
        given = static(op.input(1))
        if given is None:
            return None
    if not given:
        return [] if integer_attribute(op, "noop_with_empty_axes") else list(range(rank))
    return [normal_axis(a, rank) for a in given]


def _reduce(kind: ReduceKind) -> Converter:
    def convert(op: OnnxOp, emit: Emit) -> SSAValue | None:
        axes = reduced_axes(op)
        if axes is None:
            return None
        keepdims = bool(integer_attribute(op, "keepdims", 1))
        return emit(ReduceOp(kind, op.operands[0], axes, keepdims=keepdims))

    return convert


def _normalised(op: OnnxOp, emit: Emit) -> tuple[SSAValue, SSAValue | None, SSAValue | None] | None:
    """x, weight and bias with the normalised axes as one; None where that cannot be said."""
    x, sides = op.operands[0], (op.input(1), op.input(2))
    axis = normal_axis(integer_attribute(op, "axis", -1), rank_of(x))
    tail = shape_of(x)[axis:]
    if any(s is not None and shape_of(s) != tail for s in sides):
        return None
    if len(tail) == 1:
        return x, *sides
    if any(d.unknown for d in shape_of(x)):
        return None
    size = prod(tail, start=Dim.const(1))
    flat = [None if s is None else emit.reshape(s, [size]) for s in sides]
    return emit.reshape(x, [*shape_of(x)[:axis], size]), flat[0], flat[1]


def _layer_norm(op: OnnxOp, emit: Emit) -> Sequence[SSAValue] | None:
    found = _normalised(op, emit)
    if found is None:
        return None
    epsilon = number_attribute(op, "epsilon", 1e-5)
    y = emit.reshape(emit(LayerNormOp(*found, epsilon=epsilon)), emit.result_dims)
    if all(r is None or r.first_use is None for r in op.outputs[1:]):
        return [y]
    return _moments(op, emit, y, epsilon)


def _moments(op: OnnxOp, emit: Emit, y: SSAValue, epsilon: float) -> Sequence[SSAValue] | None:
    """The result of a layer norm, and what it was centred and scaled by."""
    x = op.operands[0]
    if any(r is None or element_of(r) != element_of(x) for r in op.outputs):
        return None
    axes = list(range(normal_axis(integer_attribute(op, "axis", -1), rank_of(x)), rank_of(x)))
    mean = emit(ReduceOp(ReduceKind.MEAN, x, axes, keepdims=True))
    centred = emit.binary(BinaryKind.SUB, x, mean)
    square = emit.binary(BinaryKind.MUL, centred, centred)
    variance = emit(ReduceOp(ReduceKind.MEAN, square, axes, keepdims=True))
    root = emit(UnaryOp(UnaryKind.SQRT, emit.binary(BinaryKind.ADD, variance, epsilon)))
    return [y, mean, emit(UnaryOp(UnaryKind.RECIPROCAL, root))][: len(op.outputs)]


def _rms_norm(op: OnnxOp, emit: Emit) -> SSAValue | None:
    found = _normalised(op, emit)
    if found is None or found[1] is None:
        return None
    made = RmsNormOp(found[0], found[1], epsilon=number_attribute(op, "epsilon", 1e-5))
    return emit.reshape(emit(made), emit.result_dims)


def _batch_norm(op: OnnxOp, emit: Emit) -> SSAValue | None:
    x, scale, bias, mean, variance = op.operands
    if integer_attribute(op, "training_mode") or rank_of(x) < 2:
        return None
    column = [shape_of(scale)[0], *[1] * (rank_of(x) - 2)]
    epsilon = number_attribute(op, "epsilon", 1e-5)
    root = emit(UnaryOp(UnaryKind.SQRT, emit.binary(BinaryKind.ADD, variance, epsilon)))
    centred = emit.binary(BinaryKind.SUB, x, emit.reshape(mean, column))
    slope = emit.reshape(emit.binary(BinaryKind.DIV, scale, root), column)
    y = emit.binary(BinaryKind.MUL, centred, slope)
    return emit.binary(BinaryKind.ADD, y, emit.reshape(bias, column))


def _group_norm(op: OnnxOp, emit: Emit) -> SSAValue | None:
    x, scale, bias = op.operands
    dims = shape_of(x)
    channels = dims[1].as_int()
    groups = integer_attribute(op, "num_groups", 0) or channels
    if channels is None or not groups or shape_of(scale) != dims[1:2]:
        return None
    size = Dim.const(channels // groups)
    for dim in dims[2:]:
        size = size * dim
    rows = emit.reshape(x, [dims[0], groups, size])
    y = emit.reshape(emit(LayerNormOp(rows, epsilon=number_attribute(op, "epsilon", 1e-5))), dims)
    column = [channels, *[1] * (len(dims) - 2)]
    y = emit.binary(BinaryKind.MUL, y, emit.reshape(scale, column))
    return emit.binary(BinaryKind.ADD, y, emit.reshape(bias, column))


def _cumsum(op: OnnxOp, emit: Emit) -> SSAValue | None:
    x, axis = op.operands[0], static(op.input(1))
    if axis is None:
        return None
    exclusive, reverse = (bool(integer_attribute(op, n)) for n in ("exclusive", "reverse"))
    return emit(CumsumOp(x, axis[0], exclusive=exclusive, reverse=reverse))


CONVERTERS: dict[str, Converter] = {
    **{name: _reduce(kind) for name, kind in REDUCE.items()},
    "MatMul": _matmul,
    "Gemm": _gemm,
    "CumSum": _cumsum,
    "Softmax": _softmax,
    "LogSoftmax": _log_softmax,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "BatchNormalization": _batch_norm,
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _group_norm,
}
"""Operator name to converter."""
