"""Questions that patterns ask of values in canonical form."""

from __future__ import annotations

from typing import TypeVar

from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects.mllm import (
    BinaryKind,
    BinaryOp,
    BroadcastOp,
    CastOp,
    CompareOp,
    ReshapeOp,
    SelectOp,
    TransposeOp,
    UnaryKind,
    UnaryOp,
    constant_scalar,
)
from mllm_compiler.dialects.types import rank_of, shape_of

OpT = TypeVar("OpT", bound=Operation)

MOST_STEPS = 256
"""How many ops a reader follows: x * x, of x * x, of x * x, .. has no end otherwise."""

FOLLOWED = (BinaryOp, BroadcastOp, CastOp, CompareOp, ReshapeOp, SelectOp, UnaryOp)
"""What readers of masks and counters follow to all operands."""


def made_by(value: SSAValue, kind: type[OpT]) -> OpT | None:
    """The op that makes a value, where it is of a class."""
    owner = value.owner
    return owner if isinstance(owner, kind) else None


def unary(value: SSAValue, kind: UnaryKind) -> SSAValue | None:
    """x, where the value is `unary kind x`."""
    op = made_by(value, UnaryOp)
    return op.x if op is not None and op.kind.data is kind else None


def binary(value: SSAValue, kind: BinaryKind) -> tuple[SSAValue, SSAValue] | None:
    """A and b, where the value is `binary kind a, b`."""
    op = made_by(value, BinaryOp)
    return (op.a, op.b) if op is not None and op.kind.data is kind else None


def with_scalar(value: SSAValue, kind: BinaryKind) -> tuple[SSAValue, float] | None:
    """X and c, where the value is `binary kind x, c` of the shape of x and c a constant.

    Canonical form has the constant of a commutative kind on the right.
    """
    pair = binary(value, kind)
    number = constant_scalar(pair[1]) if pair is not None else None
    if pair is None or number is None or shape_of(pair[0]) != shape_of(value):
        return None
    return pair[0], number


def scaled(value: SSAValue) -> tuple[SSAValue, float]:
    """X and c, where the value is c x for constants multiplied or divided by in turn."""
    factor = 1.0
    while True:
        product = with_scalar(value, BinaryKind.MUL)
        quotient = with_scalar(value, BinaryKind.DIV)
        if product is not None:
            value, factor = product[0], factor * product[1]
        elif quotient is not None and quotient[1] != 0:
            value, factor = quotient[0], factor / quotient[1]
        else:
            return value, factor


def factors(value: SSAValue) -> tuple[float, list[SSAValue]]:
    """The constant and the other factors of a product, through intermediates with one user."""
    number, rest, steps = 1.0, list[SSAValue](), 0
    pending = [(value, True)]
    while pending:
        this, open_ = pending.pop()
        steps += 1
        constant = constant_scalar(this)
        open_ = open_ and steps < MOST_STEPS
        product = binary(this, BinaryKind.MUL) if open_ else None
        quotient = with_scalar(this, BinaryKind.DIV) if open_ else None
        if constant is not None:
            number *= constant
        elif product is not None:
            pending += [(v, v.has_one_use() or v is product[0] is product[1]) for v in product]
        elif quotient is not None and quotient[1] != 0:
            number /= quotient[1]
            pending.append((quotient[0], quotient[0].has_one_use()))
        else:
            rest.append(this)
    return number, rest


def is_readable(value: SSAValue) -> bool:
    """Whether following all operands from a value on, shared ones each time, soon has an end."""
    pending, steps = [value], 0
    while pending and steps < MOST_STEPS:
        steps += 1
        owner = pending.pop().owner
        if isinstance(owner, FOLLOWED):
            pending += owner.operands
    return not pending


def is_close(a: float, b: float, tolerance: float = 1e-6) -> bool:
    """Whether two constants are one number, written in single precision."""
    return abs(a - b) <= tolerance * max(abs(a), abs(b))


def static_shape(value: SSAValue) -> tuple[int, ...] | None:
    """The shape of a tensor, where all of it is static."""
    sizes = [n for d in shape_of(value) if (n := d.as_int()) is not None]
    return tuple(sizes) if len(sizes) == rank_of(value) else None


def peel(value: SSAValue) -> SSAValue:
    """What a value is made from by reshapes, broadcasts and casts."""
    while isinstance(owner := value.owner, ReshapeOp | BroadcastOp | CastOp):
        value = owner.x
    return value


def transposed(value: SSAValue) -> tuple[SSAValue, tuple[int, ...]]:
    """X and perm, where the value is a transpose of x; itself and the identity otherwise."""
    op = made_by(value, TransposeOp)
    if op is None:
        return value, tuple(range(rank_of(value)))
    return op.x, op.permutation
