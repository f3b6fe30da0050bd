"""Offsets for buffers that live for a while: a portfolio of greedy orders, a bound and a checker.

A buffer is live from `first` to `last`, both included. Buffers whose lives meet must not share
bytes. No plan can be smaller than the most bytes that live at one time; that is the bound, and the
gap says how far a plan is from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

ALIGNMENT: Final = 64
ROUNDS: Final = 64
"""How often what reaches the top of a plan is moved to the front of the order."""


@dataclass(frozen=True)
class Interval:
    """A buffer: its life and its size in bytes."""

    name: str
    first: int
    last: int
    size: int


@dataclass(frozen=True)
class Arena:
    """A plan: where each buffer lies, how large the arena is and how small it could be."""

    offsets: tuple[int, ...]
    plan: int
    bound: int
    order: str

    @property
    def gap(self) -> float:
        """The share by which the plan is over the bound."""
        return 0.0 if self.bound == 0 else self.plan / self.bound - 1


Order = Callable[[Interval], tuple[int, ...]]

ORDERS: Final[dict[str, Order]] = {
    "size": lambda b: (-b.size, b.first),
    "lifetime": lambda b: (b.first - b.last, -b.size),
    "area": lambda b: (-(b.last - b.first + 1) * b.size, b.first),
    "program": lambda b: (b.first, -b.size),
    "reverse": lambda b: (-b.last, -b.size),
}
"""The greedy orders that are tried; a tie keeps the buffers' own order."""


def aligned(size: int) -> int:
    """A size rounded up to the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def lower_bound(buffers: Sequence[Interval]) -> int:
    """The most bytes that live at one time."""
    steps: dict[int, int] = {}
    for b in buffers:
        steps[b.first] = steps.get(b.first, 0) + aligned(b.size)
        steps[b.last + 1] = steps.get(b.last + 1, 0) - aligned(b.size)
    live = peak = 0
    for time in sorted(steps):
        live += steps[time]
        peak = max(peak, live)
    return peak


def plan(buffers: Sequence[Interval]) -> Arena:
    """The best plan of the portfolio, improved where it is over the bound."""
    bound = lower_bound(buffers)
    best: Arena | None = None
    for name, key in ORDERS.items():
        order = sorted(range(len(buffers)), key=lambda i: key(buffers[i]))
        made = _improved(buffers, order, bound, name)
        if best is None or made.plan < best.plan:
            best = made
        if best.plan == bound:
            break
    assert best is not None
    return best


def _improved(buffers: Sequence[Interval], order: list[int], bound: int, name: str) -> Arena:
    """Places in order; then, while over the bound, places what reaches the top before the rest."""
    best = Arena(tuple(_place(buffers, order)), 0, bound, name)
    best = replace(best, plan=_top(buffers, best.offsets))
    current = best
    for _ in range(ROUNDS):
        if best.plan == bound:
            break
        reach = [o + aligned(b.size) for o, b in zip(current.offsets, buffers, strict=True)]
        highest = {i for i, end in enumerate(reach) if end == current.plan}
        moved = [i for i in order if i in highest] + [i for i in order if i not in highest]
        if moved == order:
            break
        order = moved
        offsets = tuple(_place(buffers, order))
        current = replace(current, offsets=offsets, plan=_top(buffers, offsets))
        best = min(best, current, key=lambda arena: arena.plan)
    return best


def _top(buffers: Sequence[Interval], offsets: Sequence[int]) -> int:
    return max((o + aligned(b.size) for o, b in zip(offsets, buffers, strict=True)), default=0)


def _place(buffers: Sequence[Interval], order: Sequence[int]) -> list[int]:
    """Puts each buffer, in order, at the lowest offset that is free during its life."""
    count = len(buffers)
    first, last, start, end = (np.zeros(count, np.int64) for _ in range(4))
    offsets = [0] * count
    for done, i in enumerate(order):
        b = buffers[i]
        meets = (first[:done] <= b.last) & (last[:done] >= b.first)
        offset = _lowest(start[:done][meets], end[:done][meets], aligned(b.size))
        first[done], last[done] = b.first, b.last
        start[done], end[done] = offset, offset + aligned(b.size)
        offsets[i] = offset
    return offsets


def _lowest(start: NDArray[np.int64], end: NDArray[np.int64], size: int) -> int:
    """The lowest offset at which `size` bytes fit between the taken ranges."""
    by_start = np.argsort(start, kind="stable")
    start, reach = start[by_start], np.maximum.accumulate(end[by_start])
    floor = np.concatenate((np.zeros(1, np.int64), reach))
    fits = np.flatnonzero(start - floor[:-1] >= size)
    return int(floor[fits[0]] if len(fits) else floor[-1])


def check(buffers: Sequence[Interval], offsets: Sequence[int], size: int) -> None:
    """Checks a plan without trust in how it was made: a sweep over time with the ranges in use.

    Raises:
        ValueError: A buffer is misaligned, leaves the arena or overlaps another that lives too.
    """
    for b, offset in zip(buffers, offsets, strict=True):
        if offset % ALIGNMENT or offset < 0 or offset + b.size > size:
            raise ValueError(f"{b.name} at {offset} is misaligned or leaves the arena")
    events = [(b.first, 1, i) for i, b in enumerate(buffers)]
    events += [(b.last + 1, 0, i) for i, b in enumerate(buffers)]
    live: set[int] = set()
    for _, starts, i in sorted(events):
        if not starts:
            live.discard(i)
            continue
        for j in live:
            low, high = sorted((i, j), key=lambda k: offsets[k])
            if offsets[low] + buffers[low].size > offsets[high] and buffers[high].size:
                raise ValueError(f"{buffers[i].name} and {buffers[j].name} overlap")
        live.add(i)
