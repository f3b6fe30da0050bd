"""Offsets for buffers that live for a while: greedy orders, a search, a bound and a checker.

A buffer is live from `first` to `last`, both included. Buffers whose lives meet must not share
bytes. They lie in a bank, which has an end and asks for an alignment. No plan can be smaller than
the most bytes that live at one time; that is the bound, and the gap says how far a plan is from it.
Where the best of the greedy orders leaves a gap,
`arena_search.py` looks for a smaller plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mllm_compiler.passes.arena_search import LARGEST, Search

ALIGNMENT: Final = 64
LARGE: Final = 1 << 20
STEPS: Final = 20_000
"""Placements that are tried: some seconds."""


@dataclass(frozen=True)
class Interval:
    """A buffer: its life and its size in bytes."""

    name: str
    first: int
    last: int
    size: int


@dataclass(frozen=True)
class Bank:
    """The memory that a plan is made for; addresses count from its start.

    Attributes:
        capacity: Its bytes; None: it has no end.
        alignment: What large buffers start at a multiple of, and share with no other buffer.
        large: Bytes from which a buffer is large; a smaller one has `ALIGNMENT`.
    """

    capacity: int | None = None
    alignment: int = ALIGNMENT
    large: int = LARGE

    def step(self, size: int) -> int:
        """The alignment of a buffer."""
        return self.alignment if size >= self.large else ALIGNMENT

    def aligned(self, size: int) -> int:
        """The bytes that a buffer takes."""
        return -(-size // self.step(size)) * self.step(size)


PLAIN: Final = Bank()
"""The memory of a process."""


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


def lower_bound(buffers: Sequence[Interval], bank: Bank = PLAIN) -> int:
    """The most bytes that live at one time."""
    return peak(buffers, bank)[1]


def peak(buffers: Sequence[Interval], bank: Bank = PLAIN) -> tuple[int, int]:
    """The first time at which most bytes live, and how many."""
    steps: dict[int, int] = {}
    for b in buffers:
        steps[b.first] = steps.get(b.first, 0) + bank.aligned(b.size)
        steps[b.last + 1] = steps.get(b.last + 1, 0) - bank.aligned(b.size)
    live = time = most = 0
    for at in sorted(steps):
        live += steps[at]
        if live > most:
            time, most = at, live
    return time, most


def holders(buffers: Sequence[Interval], bank: Bank = PLAIN) -> list[Interval]:
    """What lives at the peak, the largest first."""
    time, _ = peak(buffers, bank)
    found = [b for b in buffers if b.first <= time <= b.last and b.size]
    return sorted(found, key=lambda b: -b.size)


def plan(buffers: Sequence[Interval], *, steps: int = STEPS, bank: Bank = PLAIN) -> Arena:
    """The best plan of the portfolio, or what is found where that is over the bound.

    Args:
        buffers: What is to be placed.
        bank: Where; a plan may be larger than its capacity.
        steps: Placements that are tried: by orders, at least one, and then by the search.
    """
    bound = lower_bound(buffers, bank)
    best: Arena | None = None
    for name, key in [*ORDERS.items()][: max(1, steps // max(1, len(buffers)))]:
        order = sorted(range(len(buffers)), key=lambda i: key(buffers[i]))
        offsets = tuple(_place(buffers, order, bank))
        made = Arena(offsets, _top(buffers, offsets, bank), bound, name)
        if best is None or made.plan < best.plan:
            best = made
        if best.plan == bound:
            break
    assert best is not None
    if any(bank.step(b.size) != ALIGNMENT for b in buffers):
        return best
    return _searched(buffers, best, steps)


def _searched(buffers: Sequence[Interval], best: Arena, steps: int) -> Arena:
    """A smaller plan, if the search finds one; it knows one alignment."""
    sized = [i for i, b in enumerate(buffers) if b.size]
    if best.plan == best.bound or len(sized) > LARGEST:
        return best
    rows = [(b.first, b.last, PLAIN.aligned(b.size)) for b in map(buffers.__getitem__, sized)]
    first, last, size = np.array(rows, np.int64).T
    found = Search(first, last, size, ALIGNMENT).improved(best.bound, best.plan, steps)
    if found is None:
        return best
    offsets = [0] * len(buffers)
    for i, offset in zip(sized, found.tolist(), strict=True):
        offsets[i] = offset
    return Arena(tuple(offsets), _top(buffers, offsets, PLAIN), best.bound, "search")


def _top(buffers: Sequence[Interval], offsets: Sequence[int], bank: Bank) -> int:
    return max((o + bank.aligned(b.size) for o, b in zip(offsets, buffers, strict=True)), default=0)


def _place(buffers: Sequence[Interval], order: Sequence[int], bank: Bank) -> list[int]:
    """Puts each buffer, in order, at the lowest offset that is free during its life."""
    count = len(buffers)
    first, last, start, end = (np.zeros(count, np.int64) for _ in range(4))
    offsets = [0] * count
    for done, i in enumerate(order):
        b = buffers[i]
        meets = (first[:done] <= b.last) & (last[:done] >= b.first)
        size, step = bank.aligned(b.size), bank.step(b.size)
        offset = _lowest(start[:done][meets], end[:done][meets], size, step)
        first[done], last[done] = b.first, b.last
        start[done], end[done] = offset, offset + size
        offsets[i] = offset
    return offsets


def _lowest(start: NDArray[np.int64], end: NDArray[np.int64], size: int, step: int) -> int:
    """The lowest multiple of `step` at which `size` bytes fit between the taken ranges."""
    by_start = np.argsort(start, kind="stable")
    start, reach = start[by_start], np.maximum.accumulate(end[by_start])
    floor = -(-np.concatenate((np.zeros(1, np.int64), reach)) // step) * step
    fits = np.flatnonzero(start - floor[:-1] >= size)
    return int(floor[fits[0]] if len(fits) else floor[-1])


def check(
    buffers: Sequence[Interval], offsets: Sequence[int], size: int, bank: Bank = PLAIN
) -> None:
    """Checks a plan without trust in how it was made: a sweep over time with the ranges in use.

    Raises:
        ValueError: A buffer is misaligned, leaves the arena or overlaps another that lives too, or
            the arena leaves the bank.
    """
    if bank.capacity is not None and size > bank.capacity:
        raise ValueError(f"{size} bytes leave a bank of {bank.capacity}")
    taken = [b.size if b.size < bank.large else bank.aligned(b.size) for b in buffers]
    for b, offset in zip(buffers, offsets, strict=True):
        if offset % bank.step(b.size) or offset < 0 or offset + b.size > size:
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
            if offsets[low] + taken[low] > offsets[high] and buffers[high].size:
                raise ValueError(f"{buffers[i].name} and {buffers[j].name} overlap")
        live.add(i)
