"""Elementwise operators of ONNX as `mllm` ops."""

from __future__ import annotations

from functools import reduce

from xdsl.dialects.builtin import i1
from xdsl.ir import Attribute, SSAValue

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
from mllm_compiler.dialects.mllm.elementwise import INTEGER_UNARY
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.dialects.types import element_of, is_float, rank_of, shape_of
from mllm_compiler.passes.lift_onnx.emit import Converter, Emit, contents, static
from mllm_compiler.passes.matching import is_close

UNARY = {
    "Neg": UnaryKind.NEG,
    "Abs": UnaryKind.ABS,
    "Sign": UnaryKind.SIGN,
    "Ceil": UnaryKind.CEIL,
    "Floor": UnaryKind.FLOOR,
    "Round": UnaryKind.ROUND,
    "Exp": UnaryKind.EXP,
    "Log": UnaryKind.LOG,
    "Sqrt": UnaryKind.SQRT,
    "Reciprocal": UnaryKind.RECIPROCAL,
    "Sin": UnaryKind.SIN,
    "Cos": UnaryKind.COS,
    "Tan": UnaryKind.TAN,
    "Asin": UnaryKind.ASIN,
    "Acos": UnaryKind.ACOS,
    "Atan": UnaryKind.ATAN,
    "Sinh": UnaryKind.SINH,
    "Cosh": UnaryKind.COSH,
    "Asinh": UnaryKind.ASINH,
    "Acosh": UnaryKind.ACOSH,
    "Atanh": UnaryKind.ATANH,
    "Tanh": UnaryKind.TANH,
    "Erf": UnaryKind.ERF,
    "Sigmoid": UnaryKind.SIGMOID,
    "Relu": UnaryKind.RELU,
    "Softplus": UnaryKind.SOFTPLUS,
    "HardSwish": UnaryKind.HARD_SWISH,
    "Mish": UnaryKind.MISH,
    "Not": UnaryKind.NOT,
    "BitwiseNot": UnaryKind.NOT,
    "IsNaN": UnaryKind.ISNAN,
}
"""Operators of one operand that are a unary kind."""

BINARY = {
    "Add": BinaryKind.ADD,
    "Sub": BinaryKind.SUB,
    "Mul": BinaryKind.MUL,
    "Div": BinaryKind.DIV,
    "And": BinaryKind.AND,
    "Or": BinaryKind.OR,
    "Xor": BinaryKind.XOR,
    "BitwiseAnd": BinaryKind.AND,
    "BitwiseOr": BinaryKind.OR,
    "BitwiseXor": BinaryKind.XOR,
    "Min": BinaryKind.MIN,
    "Max": BinaryKind.MAX,
    "Sum": BinaryKind.ADD,
}
"""Operators of two or more operands that are a binary kind, folded from the left."""

COMPARE = {
    "Equal": CompareKind.EQ,
    "Less": CompareKind.LT,
    "LessOrEqual": CompareKind.LE,
    "Greater": CompareKind.GT,
    "GreaterOrEqual": CompareKind.GE,
}
"""Operators that are a relation."""


def _unary(kind: UnaryKind) -> Converter:
    def convert(op: OnnxOp, emit: Emit) -> SSAValue | None:
        x = op.operands[0]
        if kind not in INTEGER_UNARY and not is_float(element_of(x)):
            return None
        return emit(UnaryOp(kind, x))

    return convert


def _from_axis(emit: Emit, x: SSAValue, axis: int, rank: int) -> SSAValue:
    """X with axes of extent 1 behind its own, so that its first one is `axis` of `rank`."""
    behind = max(0, rank - axis - rank_of(x))
    return emit.reshape(x, (*shape_of(x), *[1] * behind))


def _operands(op: OnnxOp, emit: Emit) -> list[SSAValue]:
    """The operands; until opset 6 an attribute says where the second one lies in the first."""
    old = op.schema.attributes.keys() >= {"axis", "broadcast"}
    axis = op.attribute("axis") if old else None
    if not isinstance(axis, int):
        return list(op.operands)
    a, b = op.operands
    return [a, _from_axis(emit, b, axis % max(1, rank_of(a)), rank_of(a))]


def _binary(kind: BinaryKind) -> Converter:
    def convert(op: OnnxOp, emit: Emit) -> SSAValue:
        first, *rest = _operands(op, emit)
        return reduce(lambda a, b: emit.binary(kind, a, b), rest, first)

    return convert


def _compare(kind: CompareKind) -> Converter:
    return lambda op, emit: emit(CompareOp(kind, *_operands(op, emit)))


def _mean(op: OnnxOp, emit: Emit) -> SSAValue:
    total = reduce(lambda a, b: emit.binary(BinaryKind.ADD, a, b), op.operands[1:], op.operands[0])
    return emit.binary(BinaryKind.DIV, total, float(len(op.operands)))


def _pow(op: OnnxOp, emit: Emit) -> SSAValue:
    base, exponent = _operands(op, emit)
    if element_of(base) != element_of(exponent):
        exponent = emit(CastOp(exponent, element_of(base)))
    return emit.binary(BinaryKind.POW, base, exponent)


def _mod(op: OnnxOp, emit: Emit) -> SSAValue | None:
    if bool(op.attribute("fmod")) != is_float(element_of(op.operands[0])):
        return None
    return emit.binary(BinaryKind.MOD, op.operands[0], op.operands[1])


def _where(op: OnnxOp, emit: Emit) -> SSAValue:
    return emit(SelectOp(*op.operands))


def _cast(op: OnnxOp, emit: Emit) -> SSAValue:
    element = element_of(op.results[0])
    x = op.operands[0]
    return x if element == element_of(x) else emit(CastOp(x, element))


def _identity(op: OnnxOp, emit: Emit) -> SSAValue:
    return op.operands[0]


def _dropout(op: OnnxOp, emit: Emit) -> list[SSAValue] | None:
    x, training = op.operands[0], op.input(2)
    if training is not None and static(training) != [0]:
        return None
    mask = op.outputs[1] if len(op.outputs) > 1 else None
    if mask is None or mask.first_use is None or element_of(mask) != i1:
        return [x]
    return [x, emit(BroadcastOp(emit.scalar(1, i1), shape_of(x)))]


def _gelu(op: OnnxOp, emit: Emit) -> SSAValue:
    tanh = op.attribute("approximate") == "tanh"
    return emit(UnaryOp(UnaryKind.GELU_TANH if tanh else UnaryKind.GELU, op.operands[0]))


def _number(op: OnnxOp, name: str) -> float:
    value = op.attribute(name)
    return float(value) if isinstance(value, int | float) else 0.0


def _hard_sigmoid(op: OnnxOp, emit: Emit) -> SSAValue:
    x, alpha, beta = op.operands[0], _number(op, "alpha"), _number(op, "beta")
    if is_close(alpha, 1 / 6) and beta == 0.5:
        return emit(UnaryOp(UnaryKind.HARD_SIGMOID, x))
    sloped = emit.binary(BinaryKind.ADD, emit.binary(BinaryKind.MUL, x, alpha), beta)
    return emit.binary(BinaryKind.MIN, emit.binary(BinaryKind.MAX, sloped, 0.0), 1.0)


def _swish(op: OnnxOp, emit: Emit) -> SSAValue:
    x, alpha = op.operands[0], _number(op, "alpha")
    if alpha == 1.0:
        return emit(UnaryOp(UnaryKind.SILU, x))
    inner = emit.binary(BinaryKind.MUL, x, alpha)
    return emit.binary(BinaryKind.MUL, x, emit(UnaryOp(UnaryKind.SIGMOID, inner)))


def _swiglu(op: OnnxOp, emit: Emit) -> SSAValue:
    return emit.binary(BinaryKind.MUL, _swish(op, emit), op.operands[1])


def _negative(x: SSAValue, emit: Emit) -> SSAValue:
    return emit(CompareOp(CompareKind.LT, x, emit.scalar(0.0, element_of(x))))


def leaky_relu(emit: Emit, x: SSAValue, alpha: float) -> SSAValue:
    """X, times alpha where it is negative."""
    return emit(SelectOp(_negative(x, emit), emit.binary(BinaryKind.MUL, x, alpha), x))


def _prelu(op: OnnxOp, emit: Emit) -> SSAValue:
    x, slope = op.operands
    if op.schema.since < 7 and rank_of(slope) == 1:
        # Until opset 6 a slope has the extent of the channels, the second axis.
        slope = _from_axis(emit, slope, 1, rank_of(x))
    return emit(SelectOp(_negative(x, emit), emit.binary(BinaryKind.MUL, x, slope), x))


def _elu(op: OnnxOp, emit: Emit) -> SSAValue:
    x = op.operands[0]
    raised = emit.binary(BinaryKind.SUB, emit(UnaryOp(UnaryKind.EXP, x)), 1.0)
    return emit(
        SelectOp(_negative(x, emit), emit.binary(BinaryKind.MUL, raised, _number(op, "alpha")), x)
    )


def _sloped(x: SSAValue, alpha: float, emit: Emit) -> SSAValue:
    return emit.binary(BinaryKind.MUL, x, alpha)


def _selu(op: OnnxOp, emit: Emit) -> SSAValue:
    return _sloped(_elu(op, emit), _number(op, "gamma"), emit)


def _celu(op: OnnxOp, emit: Emit) -> SSAValue:
    x, alpha = op.operands[0], _number(op, "alpha")
    raised = emit(UnaryOp(UnaryKind.EXP, _sloped(x, 1.0 / alpha, emit)))
    below = _sloped(emit.binary(BinaryKind.SUB, raised, 1.0), alpha, emit)
    return emit(SelectOp(_negative(x, emit), below, x))


def _thresholded_relu(op: OnnxOp, emit: Emit) -> SSAValue:
    x, zero = op.operands[0], emit.scalar(0.0, element_of(op.operands[0]))
    limit = emit.scalar(_number(op, "alpha"), element_of(x))
    return emit(SelectOp(emit(CompareOp(CompareKind.GT, x, limit)), x, zero))


def _shrink(op: OnnxOp, emit: Emit) -> SSAValue | None:
    x, limit, bias = op.operands[0], _number(op, "lambd"), _number(op, "bias")
    element = element_of(x)
    if not is_float(element):
        return None
    above = emit(CompareOp(CompareKind.GT, x, emit.scalar(limit, element)))
    below = emit(CompareOp(CompareKind.LT, x, emit.scalar(-limit, element)))
    raised = emit(SelectOp(below, emit.binary(BinaryKind.ADD, x, bias), emit.scalar(0.0, element)))
    return emit(SelectOp(above, emit.binary(BinaryKind.SUB, x, bias), raised))


def _is_inf(op: OnnxOp, emit: Emit) -> SSAValue | None:
    x = op.operands[0]
    if not op.attribute("detect_positive") or not op.attribute("detect_negative"):
        return None
    return emit(UnaryOp(UnaryKind.ISINF, x)) if is_float(element_of(x)) else None


def _lp_normalisation(op: OnnxOp, emit: Emit) -> SSAValue | None:
    x, axis = op.operands[0], op.attribute("axis")
    kinds = {1: ReduceKind.L1, 2: ReduceKind.L2}
    order = op.attribute("p")
    if not isinstance(axis, int) or not isinstance(order, int):
        return None
    size = emit(ReduceOp(kinds[order], x, [axis], keepdims=True))
    zero = emit.scalar(0.0, element_of(x))
    empty = emit(CompareOp(CompareKind.EQ, size, zero))
    return emit(SelectOp(empty, zero, emit.binary(BinaryKind.DIV, x, size)))


def _softsign(op: OnnxOp, emit: Emit) -> SSAValue:
    x = op.operands[0]
    size = emit.binary(BinaryKind.ADD, emit(UnaryOp(UnaryKind.ABS, x)), 1.0)
    return emit.binary(BinaryKind.DIV, x, size)


def _clip(op: OnnxOp, emit: Emit) -> SSAValue:
    x = op.operands[0]
    for position, name, kind in ((1, "min", BinaryKind.MAX), (2, "max", BinaryKind.MIN)):
        limit = op.input(position)
        given = op.properties.get(name)
        if limit is not None:
            x = emit.binary(kind, x, limit)
        elif given is not None:
            x = emit.binary(kind, x, _number(op, name))
    return x


def _is_bool(element: Attribute) -> bool:
    return element == i1


def _trilu(op: OnnxOp, emit: Emit) -> SSAValue | None:
    x = op.operands[0]
    diagonal = op.input(1)
    known = contents(diagonal)
    start = known[0] if known else 0
    rows, columns = shape_of(x)[-2:]
    if rows.unknown or columns.unknown or rank_of(x) < 2:
        return None
    row = emit.reshape(emit(IotaOp(rows, start)), [rows, 1])
    if diagonal is not None and not known:
        row = emit.binary(BinaryKind.ADD, row, diagonal)
    column = emit(IotaOp(columns))
    upper = bool(op.attribute("upper"))
    kept = emit(CompareOp(CompareKind.GE if upper else CompareKind.LE, column, row))
    if _is_bool(element_of(x)):
        return emit.binary(BinaryKind.AND, x, kept)
    return emit(SelectOp(kept, x, emit.scalar(0, element_of(x))))


CONVERTERS: dict[str, Converter] = {
    **{name: _unary(kind) for name, kind in UNARY.items()},
    **{name: _binary(kind) for name, kind in BINARY.items()},
    **{name: _compare(kind) for name, kind in COMPARE.items()},
    "Mean": _mean,
    "Pow": _pow,
    "Mod": _mod,
    "Where": _where,
    "Cast": _cast,
    "CastLike": _cast,
    "Identity": _identity,
    "Dropout": _dropout,
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "Swish": _swish,
    "SwiGLU": _swiglu,
    "LeakyRelu": lambda op, emit: leaky_relu(emit, op.operands[0], _number(op, "alpha")),
    "PRelu": _prelu,
    "Elu": _elu,
    "Softsign": _softsign,
    "Clip": _clip,
    "Selu": _selu,
    "Celu": _celu,
    "ThresholdedRelu": _thresholded_relu,
    "Shrink": _shrink,
    "IsInf": _is_inf,
    "LpNormalization": _lp_normalisation,
    "Trilu": _trilu,
}
"""Operator name to converter."""
