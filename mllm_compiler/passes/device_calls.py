"""Which ops of several processors run in one call: each in the earliest phase of its processor."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

Op = TypeVar("Op", bound=Hashable)


def phases(
    order: Iterable[Op],
    makers: Callable[[Op], Iterable[Op]],
    side: Callable[[Op], int],
    sides: int,
) -> dict[Op, int]:
    """The phase in which each op runs; the ops of one phase are one call.

    Phases go round the processors: with two of them the host has 0, 2, 4 .. and the device 1, 3 ..
    An op runs in the first phase of its processor in which all that it reads is there. So no way
    between two ops of a phase leads over another processor, and of one device there are only as
    many calls as changes to it on the longest way.

    Args:
        order: The ops, each behind those that it reads.
        makers: The ops that an op reads; others than those of `order` are there from the start.
        side: The processor of an op.
        sides: How many processors there are.
    """
    found: dict[Op, int] = {}
    for op in order:
        ready = max((found[maker] for maker in makers(op) if maker in found), default=0)
        found[op] = ready + (side(op) - ready) % sides
    return found
