"""Meanings of the elementwise ops of the `mllm` dialect."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

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
from mllm_compiler.dialects.types import dtype_of, element_of
from mllm_compiler.reference.entry import one
from mllm_compiler.reference.executor import Array, Frame, Meaning

Real = NDArray[np.floating]

_erf_of_object = np.frompyfunc(math.erf, 1, 1)


def erf(x: Real) -> Real:
    """The error function, exact to the dtype."""
    return np.asarray(_erf_of_object(x)).astype(x.dtype)


def sigmoid(x: Real) -> Real:
    """1 / (1 + exp(-x)) without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small)).astype(x.dtype)


def gelu(x: Real) -> Real:
    """X / 2 (1 + erf(x / sqrt 2))."""
    half, root = x.dtype.type(0.5), x.dtype.type(math.sqrt(0.5))
    return x * half * (1 + erf(x * root))


def gelu_tanh(x: Real) -> Real:
    """The tanh form of gelu."""
    scale, cubic = x.dtype.type(math.sqrt(2 / math.pi)), x.dtype.type(0.044715)
    return x * x.dtype.type(0.5) * (1 + np.tanh(scale * (x + cubic * x * x * x)))


def softplus(x: Real) -> Real:
    """log(1 + exp(x)) without overflow."""
    return np.logaddexp(x, x.dtype.type(0))


def hard_sigmoid(x: Real) -> Real:
    """max(0, min(1, x/6 + 1/2))."""
    return np.clip(x / x.dtype.type(6) + x.dtype.type(0.5), 0, 1).astype(x.dtype)


UNARY: dict[UnaryKind, Callable[[Real], Array]] = {
    UnaryKind.NEG: np.negative,
    UnaryKind.ABS: np.abs,
    UnaryKind.SIGN: np.sign,
    UnaryKind.CEIL: np.ceil,
    UnaryKind.FLOOR: np.floor,
    UnaryKind.ROUND: np.rint,
    UnaryKind.EXP: np.exp,
    UnaryKind.LOG: np.log,
    UnaryKind.SQRT: np.sqrt,
    UnaryKind.RSQRT: lambda x: x.dtype.type(1) / np.sqrt(x),
    UnaryKind.RECIPROCAL: lambda x: x.dtype.type(1) / x,
    UnaryKind.SIN: np.sin,
    UnaryKind.COS: np.cos,
    UnaryKind.TAN: np.tan,
    UnaryKind.TANH: np.tanh,
    UnaryKind.ASIN: np.arcsin,
    UnaryKind.ACOS: np.arccos,
    UnaryKind.ATAN: np.arctan,
    UnaryKind.SINH: np.sinh,
    UnaryKind.COSH: np.cosh,
    UnaryKind.ASINH: np.arcsinh,
    UnaryKind.ACOSH: np.arccosh,
    UnaryKind.ATANH: np.arctanh,
    UnaryKind.ERF: erf,
    UnaryKind.SIGMOID: sigmoid,
    UnaryKind.RELU: lambda x: np.maximum(x, x.dtype.type(0)),
    UnaryKind.SILU: lambda x: x * sigmoid(x),
    UnaryKind.GELU: gelu,
    UnaryKind.GELU_TANH: gelu_tanh,
    UnaryKind.SOFTPLUS: softplus,
    UnaryKind.HARD_SIGMOID: hard_sigmoid,
    UnaryKind.HARD_SWISH: lambda x: x * hard_sigmoid(x),
    UnaryKind.MISH: lambda x: x * np.tanh(softplus(x)),
    UnaryKind.NOT: np.invert,
    UnaryKind.ISNAN: np.isnan,
    UnaryKind.ISINF: np.isinf,
}
"""Each unary kind as a function of an array."""


def divide(a: Array, b: Array) -> Array:
    """The quotient; of integers truncated towards zero."""
    if a.dtype.kind not in "iu":
        return np.divide(a, b)
    quotient, remainder = np.divmod(a, b)
    return quotient + ((remainder != 0) & ((a < 0) != (b < 0))).astype(a.dtype)


def modulo(a: Array, b: Array) -> Array:
    """The remainder: with the sign of b on integers, of a on floating point."""
    return np.mod(a, b) if a.dtype.kind in "iu" else np.fmod(a, b)


BINARY: dict[BinaryKind, Callable[[Array, Array], Array]] = {
    BinaryKind.ADD: np.add,
    BinaryKind.SUB: np.subtract,
    BinaryKind.MUL: np.multiply,
    BinaryKind.DIV: divide,
    BinaryKind.POW: np.power,
    BinaryKind.MIN: np.minimum,
    BinaryKind.MAX: np.maximum,
    BinaryKind.MOD: modulo,
    BinaryKind.AND: np.bitwise_and,
    BinaryKind.OR: np.bitwise_or,
    BinaryKind.XOR: np.bitwise_xor,
}
"""Each binary kind as a function of two arrays."""

COMPARE: dict[CompareKind, Callable[[Array, Array], Array]] = {
    CompareKind.EQ: np.equal,
    CompareKind.NE: np.not_equal,
    CompareKind.LT: np.less,
    CompareKind.LE: np.less_equal,
    CompareKind.GT: np.greater,
    CompareKind.GE: np.greater_equal,
}
"""Each relation as a function of two arrays."""


def apply_unary(kind: UnaryKind, x: Array) -> Array:
    """A unary kind on an array; infinities and NaN come out as they do on a chip, unwarned."""
    with np.errstate(all="ignore"):
        return np.asarray(UNARY[kind](x))  # pyright: ignore[reportArgumentType]


def _unary(op: UnaryOp, operands: Sequence[Array], frame: Frame) -> Array:
    y = apply_unary(op.kind.data, operands[0])
    return y.astype(dtype_of(element_of(op.result)), copy=False)


def _binary(op: BinaryOp, operands: Sequence[Array], frame: Frame) -> Array:
    with np.errstate(all="ignore"):
        y = BINARY[op.kind.data](operands[0], operands[1])
    return np.asarray(y).astype(dtype_of(element_of(op.result)), copy=False)


def _compare(op: CompareOp, operands: Sequence[Array], frame: Frame) -> Array:
    return np.asarray(COMPARE[op.kind.data](operands[0], operands[1]))


def _select(op: SelectOp, operands: Sequence[Array], frame: Frame) -> Array:
    return np.where(operands[0], operands[1], operands[2])


def _cast(op: CastOp, operands: Sequence[Array], frame: Frame) -> Array:
    with np.errstate(all="ignore"):
        return operands[0].astype(dtype_of(element_of(op.result)))


MEANINGS: dict[str, Meaning] = dict(
    [
        one(UnaryOp, _unary),
        one(BinaryOp, _binary),
        one(CompareOp, _compare),
        one(SelectOp, _select),
        one(CastOp, _cast),
    ]
)
"""Op name to meaning."""
