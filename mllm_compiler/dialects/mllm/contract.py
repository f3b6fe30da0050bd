"""What the verifiers of `mllm` ops share: numbered constraints and the comparison of dims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.dialects.builtin import (
    AnyFloat,
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    f64,
    i64,
)
from xdsl.ir import Attribute, Operation
from xdsl.utils.exceptions import VerifyException

from mllm_compiler.dialects.dims import UNKNOWN, Dim
from mllm_compiler.dialects.types import shape_of


def check(op: Operation, number: int, holds: bool, text: str) -> None:
    """Raises the violation of constraint `number` of the op's docstring unless it holds.

    Raises:
        VerifyException: `'mllm.rms_norm' C1: weight must be [dim]`.
    """
    if not holds:
        raise VerifyException(f"'{op.name}' C{number}: {text}")


def check_broadcast(op: Operation, number: int) -> None:
    """Checks that the result has the shape that NumPy broadcasts the operands to."""
    dims = broadcast_dims(*(shape_of(v) for v in op.operands))
    fits = dims is not None and all_agree(dims, shape_of(op.results[0]))
    check(op, number, fits, "the result must have the broadcast shape of the operands")


def agree(a: Dim | int, b: Dim | int) -> bool:
    """Whether two dims may be equal: only two different constants, or dims apart by one, differ."""
    difference = (Dim.of(a) - Dim.of(b)).as_int()
    return difference is None or difference == 0


def all_agree(a: Sequence[Dim | int], b: Sequence[Dim | int]) -> bool:
    """Whether two shapes may be equal."""
    return len(a) == len(b) and all(agree(x, y) for x, y in zip(a, b, strict=True))


def broadcast_dims(*shapes: Sequence[Dim]) -> tuple[Dim, ...] | None:
    """The shape that NumPy broadcasts `shapes` to, None where two dims cannot meet.

    Of two different symbolic dims the first is taken; a constant above one wins over a symbol.
    """
    rank = max(len(s) for s in shapes)
    padded = [(*(Dim.const(1),) * (rank - len(s)), *s) for s in shapes]
    result: list[Dim] = []
    for column in zip(*padded, strict=True):
        met = _meet(column)
        if met is None:
            return None
        result.append(met)
    return tuple(result)


def _meet(column: Sequence[Dim]) -> Dim | None:
    wide = [d for d in column if d.as_int() != 1]
    if not wide:
        return Dim.const(1)
    constants = {d.as_int() for d in wide} - {None}
    if len(constants) > 1:
        return None
    fixed = [d for d in wide if d.as_int() is not None]
    known = [d for d in wide if not d.unknown]
    return (fixed or known or [UNKNOWN])[0]


def normal_axis(axis: int, rank: int) -> int:
    """A possibly negative axis as one from 0."""
    return axis + rank if axis < 0 else axis


def integer(value: int) -> IntegerAttr:
    """A 64-bit integer attribute."""
    return IntegerAttr(value, i64)


def number(value: float) -> FloatAttr:
    """A double attribute."""
    return FloatAttr(value, f64)


def integers(values: Sequence[int]) -> DenseArrayBase:
    """An array attribute of 64-bit integers."""
    return DenseArrayBase.from_list(i64, values)


def int_list(array: DenseArrayBase) -> tuple[int, ...]:
    """The values of an array attribute of integers."""
    return tuple(cast(DenseArrayBase[IntegerType], array).get_values())


def float_list(array: DenseArrayBase) -> tuple[float, ...]:
    """The values of an array attribute of floating-point numbers."""
    return tuple(cast(DenseArrayBase[AnyFloat], array).get_values())


def given(**properties: Attribute | None) -> dict[str, Attribute]:
    """The properties that are not None."""
    return {name: value for name, value in properties.items() if value is not None}
