"""Elementwise ops of the `mllm` dialect as nodes of the standard."""

from __future__ import annotations

from math import pi, sqrt
from typing import Final

from xdsl.dialects.builtin import i1
from xdsl.ir import Attribute

from mllm_compiler.backends.onnx.builder import Builder, Value
from mllm_compiler.backends.onnx.entry import Inputs, one
from mllm_compiler.dialects.mllm import (
    BinaryKind,
    BinaryOp,
    CastOp,
    CompareKind,
    CompareOp,
    SelectOp,
    UnaryKind,
    UnaryOp,
)
from mllm_compiler.dialects.types import element_of, is_float

SAME_NAME: Final = {
    UnaryKind.NEG: "Neg",
    UnaryKind.ABS: "Abs",
    UnaryKind.SIGN: "Sign",
    UnaryKind.CEIL: "Ceil",
    UnaryKind.FLOOR: "Floor",
    UnaryKind.ROUND: "Round",
    UnaryKind.EXP: "Exp",
    UnaryKind.LOG: "Log",
    UnaryKind.SQRT: "Sqrt",
    UnaryKind.RECIPROCAL: "Reciprocal",
    UnaryKind.SIN: "Sin",
    UnaryKind.COS: "Cos",
    UnaryKind.TAN: "Tan",
    UnaryKind.TANH: "Tanh",
    UnaryKind.ASIN: "Asin",
    UnaryKind.ACOS: "Acos",
    UnaryKind.ATAN: "Atan",
    UnaryKind.SINH: "Sinh",
    UnaryKind.COSH: "Cosh",
    UnaryKind.ASINH: "Asinh",
    UnaryKind.ACOSH: "Acosh",
    UnaryKind.ATANH: "Atanh",
    UnaryKind.ERF: "Erf",
    UnaryKind.SIGMOID: "Sigmoid",
    UnaryKind.RELU: "Relu",
    UnaryKind.SOFTPLUS: "Softplus",
    UnaryKind.ISNAN: "IsNaN",
    UnaryKind.ISINF: "IsInf",
}
"""Unary kinds that the standard has as an operator without attributes."""

BINARY: Final = {
    BinaryKind.ADD: "Add",
    BinaryKind.SUB: "Sub",
    BinaryKind.MUL: "Mul",
    BinaryKind.DIV: "Div",
    BinaryKind.POW: "Pow",
    BinaryKind.MIN: "Min",
    BinaryKind.MAX: "Max",
}
"""Binary kinds that have one operator for all types."""

LOGICAL: Final = {BinaryKind.AND: "And", BinaryKind.OR: "Or", BinaryKind.XOR: "Xor"}
"""Binary kinds that have one operator for booleans and one, `Bitwise...`, for integers."""

COMPARE: Final = {
    CompareKind.EQ: "Equal",
    CompareKind.NE: "Equal",
    CompareKind.LT: "Less",
    CompareKind.LE: "LessOrEqual",
    CompareKind.GT: "Greater",
    CompareKind.GE: "GreaterOrEqual",
}
"""The operator of each relation; that of `ne` is negated."""

GELU_SINCE: Final = 20
MISH_SINCE: Final = 18


def apply(b: Builder, kind: UnaryKind, x: Value, element: Attribute) -> Value:
    """A unary function of a value."""
    if kind in SAME_NAME:
        return b.node(SAME_NAME[kind], x)
    match kind:
        case UnaryKind.RSQRT:
            return b.node("Reciprocal", b.node("Sqrt", x))
        case UnaryKind.SILU:
            return b.node("Mul", x, b.node("Sigmoid", x))
        case UnaryKind.GELU | UnaryKind.GELU_TANH:
            return _gelu(b, x, element, tanh=kind is UnaryKind.GELU_TANH)
        case UnaryKind.HARD_SIGMOID:
            return b.node("HardSigmoid", x, alpha=1 / 6, beta=0.5)
        case UnaryKind.HARD_SWISH:
            return b.node("HardSwish", x)
        case UnaryKind.MISH if b.opset >= MISH_SINCE:
            return b.node("Mish", x)
        case UnaryKind.MISH:
            return b.node("Mul", x, b.node("Tanh", b.node("Softplus", x)))
        case _:
            return b.node("Not" if element == i1 else "BitwiseNot", x)


def _gelu(b: Builder, x: Value, element: Attribute, *, tanh: bool) -> Value:
    if b.opset >= GELU_SINCE:
        return b.node("Gelu", x, approximate="tanh" if tanh else "none")
    one, half = b.scalar(1.0, element), b.scalar(0.5, element)
    if tanh:
        cube = b.node("Mul", b.node("Mul", x, x), x)
        inner = b.node("Add", x, b.node("Mul", cube, b.scalar(0.044715, element)))
        bent = b.node("Tanh", b.node("Mul", inner, b.scalar(sqrt(2 / pi), element)))
    else:
        bent = b.node("Erf", b.node("Div", x, b.scalar(sqrt(2), element)))
    return b.node("Mul", b.node("Mul", x, b.node("Add", bent, one)), half)


def _unary(op: UnaryOp, b: Builder, inputs: Inputs) -> Value:
    return apply(b, op.kind.data, inputs[0], element_of(op.x))


def _binary(op: BinaryOp, b: Builder, inputs: Inputs) -> Value:
    kind, element = op.kind.data, element_of(op.a)
    if kind in BINARY:
        return b.node(BINARY[kind], *inputs)
    if kind is BinaryKind.MOD:
        return b.node("Mod", *inputs, fmod=int(is_float(element)))
    return b.node(LOGICAL[kind] if element == i1 else f"Bitwise{LOGICAL[kind]}", *inputs)


def _compare(op: CompareOp, b: Builder, inputs: Inputs) -> Value:
    kind = op.kind.data
    answer = b.node(COMPARE[kind], *inputs)
    return b.node("Not", answer) if kind is CompareKind.NE else answer


def _select(op: SelectOp, b: Builder, inputs: Inputs) -> Value:
    return b.node("Where", *inputs)


def _cast(op: CastOp, b: Builder, inputs: Inputs) -> Value:
    return b.cast(inputs[0], element_of(op.result))


EXPORTERS = dict(
    [
        one(UnaryOp, _unary),
        one(BinaryOp, _binary),
        one(CompareOp, _compare),
        one(SelectOp, _select),
        one(CastOp, _cast),
    ]
)
"""Op class to exporter."""
