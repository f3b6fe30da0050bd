"""`lift-activations`: the arithmetic of an activation becomes one op; tolerance 1e-5.

    %0 = mllm.binary div %x, %root_of_two : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
    %1 = mllm.unary erf %0 : (tensor<8xf32>) -> tensor<8xf32>
    %2 = mllm.binary add %1, %one : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
    %3 = mllm.binary mul %x, %2 : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    %4 = mllm.binary mul %3, %half : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>

becomes

    %4 = mllm.unary gelu %x : (tensor<8xf32>) -> tensor<8xf32>

The factors of the product may come in any order; so for the tanh form of gelu, for silu
(x sigmoid(x)) and for the sigmoid spelled 1 / (1 + exp(-x)).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, sqrt

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from mllm_compiler.dialects.mllm import BinaryKind, BinaryOp, UnaryKind, UnaryOp
from mllm_compiler.passes.matching import binary, factors, is_close, scaled, unary, with_scalar
from mllm_compiler.passes.rewrite import On, rewrite, substitute

CUBIC = 0.044715
"""The coefficient of x^3 in the tanh form of gelu (Hendrycks & Gimpel 2016)."""


def _one_plus(value: SSAValue, kind: UnaryKind) -> SSAValue | None:
    """u, where the value is kind(u) + 1."""
    summed = with_scalar(value, BinaryKind.ADD)
    return unary(summed[0], kind) if summed is not None and summed[1] == 1.0 else None


def _gelu_kind(x: SSAValue, gate: SSAValue) -> UnaryKind | None:
    """Which gelu the factor 1 + f(u) makes of x / 2."""
    error = _one_plus(gate, UnaryKind.ERF)
    if error is not None:
        inner, factor = scaled(error)
        return UnaryKind.GELU if inner is x and is_close(factor, sqrt(0.5)) else None
    argument = _one_plus(gate, UnaryKind.TANH)
    if argument is not None and _is_tanh_argument(argument, x):
        return UnaryKind.GELU_TANH
    return None


def _is_tanh_argument(value: SSAValue, x: SSAValue) -> bool:
    """Whether the value is sqrt(2/pi) (x + 0.044715 x^3), in one of its two spellings."""
    number, parts = factors(value)
    if not is_close(number, sqrt(2 / pi)):
        return False
    if len(parts) == 1:
        pair = binary(parts[0], BinaryKind.ADD)
        return pair is not None and any(a is x and _is_cubic(b, x) for a, b in (pair, pair[::-1]))
    rest = [p for p in parts if p is not x]
    if len(rest) != 1 or len(parts) != 2:
        return False
    summed = with_scalar(rest[0], BinaryKind.ADD)
    if summed is None or summed[1] != 1.0:
        return False
    number, squares = factors(summed[0])
    return is_close(number, CUBIC) and _power_of(squares, x) == 2


def _is_cubic(value: SSAValue, x: SSAValue) -> bool:
    number, parts = factors(value)
    return is_close(number, CUBIC) and _power_of(parts, x) == 3


def _power_of(parts: list[SSAValue], x: SSAValue) -> int:
    """The exponent, where the product of the parts is a power of x; else 0."""
    total = 0
    for part in parts:
        power = with_scalar(part, BinaryKind.POW)
        if part is x:
            total += 1
        elif power is not None and power[0] is x and power[1].is_integer():
            total += int(power[1])
        elif binary(part, BinaryKind.MUL) == (x, x):
            total += 2
        else:
            return 0
    return total


def _gelu(op: BinaryOp, rewriter: PatternRewriter) -> None:
    if op.kind.data not in (BinaryKind.MUL, BinaryKind.DIV):
        return
    number, parts = factors(op.result)
    if len(parts) != 2 or number != 0.5:
        return
    for x, gate in (parts, parts[::-1]):
        kind = _gelu_kind(x, gate)
        if kind is not None:
            substitute(rewriter, op, UnaryOp(kind, x))
            return


def _silu(op: BinaryOp, rewriter: PatternRewriter) -> None:
    if op.kind.data is not BinaryKind.MUL:
        return
    for x, gate in ((op.a, op.b), (op.b, op.a)):
        if unary(gate, UnaryKind.SIGMOID) is x:
            substitute(rewriter, op, UnaryOp(UnaryKind.SILU, x))
            return


def _sigmoid(op: UnaryOp, rewriter: PatternRewriter) -> None:
    if op.kind.data is not UnaryKind.RECIPROCAL:
        return
    exponent = _one_plus(op.x, UnaryKind.EXP)
    x = unary(exponent, UnaryKind.NEG) if exponent is not None else None
    if x is not None:
        substitute(rewriter, op, UnaryOp(UnaryKind.SIGMOID, x))


@dataclass(frozen=True)
class LiftActivations(ModulePass):
    """Recognises gelu, silu and sigmoid."""

    name = "lift-activations"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites to a fixpoint."""
        rewrite(op, On(UnaryOp, _sigmoid), On(BinaryOp, _silu), On(BinaryOp, _gelu))
