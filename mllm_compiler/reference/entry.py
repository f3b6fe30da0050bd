"""How the tables of meanings are written: one typed function an op class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from xdsl.ir import Operation

from mllm_compiler.reference.executor import Array, Frame, Meaning

OpT = TypeVar("OpT", bound=Operation)


def one(
    kind: type[OpT], compute: Callable[[OpT, Sequence[Array], Frame], Array]
) -> tuple[str, Meaning]:
    """The table entry of an op with one result."""

    def meaning(op: Operation, operands: Sequence[Array], frame: Frame) -> Sequence[Array]:
        return (compute(cast(OpT, op), operands, frame),)

    return kind.name, meaning


def several(
    kind: type[OpT], compute: Callable[[OpT, Sequence[Array], Frame], Sequence[Array]]
) -> tuple[str, Meaning]:
    """The table entry of an op with several results."""

    def meaning(op: Operation, operands: Sequence[Array], frame: Frame) -> Sequence[Array]:
        return compute(cast(OpT, op), operands, frame)

    return kind.name, meaning
