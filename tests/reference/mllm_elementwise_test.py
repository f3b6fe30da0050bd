"""The meanings of elementwise ops, against the ONNX standard's own reference."""

from __future__ import annotations

import numpy as np
import pytest

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.mllm import BinaryKind, CompareKind, UnaryKind
from tests.reference.single_op import RNG, close, real, run, standard

UNARY = {
    UnaryKind.NEG: ("Neg", {}),
    UnaryKind.ABS: ("Abs", {}),
    UnaryKind.SIGN: ("Sign", {}),
    UnaryKind.CEIL: ("Ceil", {}),
    UnaryKind.FLOOR: ("Floor", {}),
    UnaryKind.ROUND: ("Round", {}),
    UnaryKind.EXP: ("Exp", {}),
    UnaryKind.LOG: ("Log", {}),
    UnaryKind.SQRT: ("Sqrt", {}),
    UnaryKind.RECIPROCAL: ("Reciprocal", {}),
    UnaryKind.SIN: ("Sin", {}),
    UnaryKind.COS: ("Cos", {}),
    UnaryKind.TAN: ("Tan", {}),
    UnaryKind.TANH: ("Tanh", {}),
    UnaryKind.ASIN: ("Asin", {}),
    UnaryKind.ACOS: ("Acos", {}),
    UnaryKind.ATAN: ("Atan", {}),
    UnaryKind.SINH: ("Sinh", {}),
    UnaryKind.COSH: ("Cosh", {}),
    UnaryKind.ASINH: ("Asinh", {}),
    UnaryKind.ACOSH: ("Acosh", {}),
    UnaryKind.ATANH: ("Atanh", {}),
    UnaryKind.ERF: ("Erf", {}),
    UnaryKind.SIGMOID: ("Sigmoid", {}),
    UnaryKind.RELU: ("Relu", {}),
    UnaryKind.GELU: ("Gelu", {}),
    UnaryKind.GELU_TANH: ("Gelu", {"approximate": "tanh"}),
    UnaryKind.SOFTPLUS: ("Softplus", {}),
    UnaryKind.HARD_SWISH: ("HardSwish", {}),
    UnaryKind.HARD_SIGMOID: ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
    UnaryKind.MISH: ("Mish", {}),
    UnaryKind.ISNAN: ("IsNaN", {}),
    UnaryKind.ISINF: ("IsInf", {}),
}


@pytest.mark.parametrize("kind", UNARY)
def test_unary(kind: UnaryKind) -> None:
    x = real(3, 5) * 3
    if kind in (UnaryKind.LOG, UnaryKind.SQRT):
        x = np.abs(x)
    if kind in (UnaryKind.ASIN, UnaryKind.ACOS, UnaryKind.ATANH):
        x = np.tanh(x)
    if kind == UnaryKind.ACOSH:
        x = np.abs(x) + 1
    op_type, attributes = UNARY[kind]
    close(run(lambda v: mllm.UnaryOp(kind, v), x)[0], standard(op_type, [x], **attributes)[0])


def test_unary_kinds_without_an_onnx_operator() -> None:
    x = np.abs(real(3, 5)) + 1
    close(run(lambda v: mllm.UnaryOp(UnaryKind.RSQRT, v), x)[0], 1 / np.sqrt(x))
    close(run(lambda v: mllm.UnaryOp(UnaryKind.SILU, v), x)[0], x / (1 + np.exp(-x)))
    flags = np.array([True, False])
    assert run(lambda v: mllm.UnaryOp(UnaryKind.NOT, v), flags)[0].tolist() == [False, True]
    assert len(UNARY) + 3 == len(UnaryKind)


BINARY = {
    BinaryKind.ADD: "Add",
    BinaryKind.SUB: "Sub",
    BinaryKind.MUL: "Mul",
    BinaryKind.DIV: "Div",
    BinaryKind.MIN: "Min",
    BinaryKind.MAX: "Max",
}


@pytest.mark.parametrize("kind", BINARY)
def test_binary_broadcasts(kind: BinaryKind) -> None:
    a, b = real(2, 1, 5), real(3, 1)
    close(run(lambda x, y: mllm.BinaryOp(kind, x, y), a, b)[0], standard(BINARY[kind], [a, b])[0])


def test_power_modulo_and_integer_division() -> None:
    a, b = np.abs(real(4)), real(4)
    close(
        run(lambda x, y: mllm.BinaryOp(BinaryKind.POW, x, y), a, b)[0], standard("Pow", [a, b])[0]
    )
    m, n = np.array([-7, 7, -7, 7]), np.array([2, -2, -2, 2])
    close(
        run(lambda x, y: mllm.BinaryOp(BinaryKind.MOD, x, y), m, n)[0], standard("Mod", [m, n])[0]
    )
    fractions = standard("Mod", [b, a], fmod=1)[0]
    close(run(lambda x, y: mllm.BinaryOp(BinaryKind.MOD, x, y), b, a)[0], fractions)
    quotient = run(lambda x, y: mllm.BinaryOp(BinaryKind.DIV, x, y), m, n)[0]
    assert quotient.tolist() == [-3, -3, 3, 3]


@pytest.mark.parametrize(
    ("kind", "op_type"),
    [(BinaryKind.AND, "And"), (BinaryKind.OR, "Or"), (BinaryKind.XOR, "Xor")],
)
def test_logic(kind: BinaryKind, op_type: str) -> None:
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    close(run(lambda x, y: mllm.BinaryOp(kind, x, y), a, b)[0], standard(op_type, [a, b])[0])


@pytest.mark.parametrize(
    ("kind", "op_type"),
    [
        (CompareKind.EQ, "Equal"),
        (CompareKind.LT, "Less"),
        (CompareKind.LE, "LessOrEqual"),
        (CompareKind.GT, "Greater"),
        (CompareKind.GE, "GreaterOrEqual"),
    ],
)
def test_compare_and_select(kind: CompareKind, op_type: str) -> None:
    a, b = RNG.integers(0, 3, (4, 4)), RNG.integers(0, 3, 4)
    ours = run(lambda x, y: mllm.CompareOp(kind, x, y), a, b)[0]
    close(ours, standard(op_type, [a, b])[0])
    chosen = run(lambda c, x, y: mllm.SelectOp(c, x, y), ours, a, b)[0]
    close(chosen, standard("Where", [ours, a, b])[0])
