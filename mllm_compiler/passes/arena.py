"""Offsets for buffers that live for a while: greedy orders, a search, a bound and a checker.

A buffer is live from `first` to `last`, both included. Buffers that meet (`intervals.py`) must not
share bytes. They lie in a bank, which has an end and asks for an alignment; `banks.py` divides them
among several. No plan can be smaller than the most bytes that live at one time; that is the bound,
and the gap says how far a plan is from it. Where the best of the greedy orders leaves a gap,
`arena_search.py` looks for a smaller plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mllm_compiler.passes.arena_search import LARGEST, Search
from mllm_compiler.passes.intervals import Interval, Overlap, busiest, lives, meetings, touches

__all__ = ["Interval", "Overlap"]

ALIGNMENT: Final = 64
LARGE: Final = 1 << 20
STEPS: Final = 20_000
"""Placements that are tried: some seconds."""


@dataclass(frozen=True)
class Bank:
    """The memory that a plan is made for; addresses count from its start.

    Attributes:
        capacity: Its bytes; None: it has no end.
        alignment: What large buffers start at a multiple of, and share with no other buffer.
        large: Bytes from which a buffer is large; a smaller one has `ALIGNMENT`.
        name: Its name.
        least: The bytes of the smallest buffer that it takes.
        contiguous: Devices can read and write it in one piece. Where a bank is, what they read and
            write lies in such banks alone.
    """

    capacity: int | None = None
    alignment: int = ALIGNMENT
    large: int = LARGE
    name: str = "arena"
    least: int = 0
    contiguous: bool = False

    def step(self, size: int) -> int:
        """The alignment of a buffer."""
        return self.alignment if size >= self.large else ALIGNMENT

    def aligned(self, size: int) -> int:
        """The bytes that a buffer takes."""
        return -(-size // self.step(size)) * self.step(size)


PLAIN: Final = Bank()
"""The memory of a process."""


@dataclass(frozen=True)
class Part:
    """What a plan has of a bank: `size` bytes from `start` on; `buffers` are those that lie there.

    `start` counts from the start of the arena, and is as the bank asks it of large buffers.
    """

    bank: Bank
    start: int
    size: int
    buffers: tuple[int, ...]


@dataclass(frozen=True)
class Arena:
    """A plan: where each buffer lies, how large the arena is and how small it could be.

    `parts` are those of several banks, one behind the other.
    """

    offsets: tuple[int, ...]
    plan: int
    bound: int
    order: str
    parts: tuple[Part, ...] = ()

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


def lower_bound(
    buffers: Sequence[Interval], bank: Bank = PLAIN, overlaps: Sequence[Overlap] = ()
) -> int:
    """The most bytes that live at one time."""
    return peak(buffers, bank, overlaps)[1]


def peak(
    buffers: Sequence[Interval], bank: Bank = PLAIN, overlaps: Sequence[Overlap] = ()
) -> tuple[tuple[int, ...], int]:
    """The first time at which most bytes live, and how many.

    Where that is while graphs overlap, there is a time of each of them.
    """
    steps: dict[int, int] = {}
    for b in buffers:
        steps[b.first] = steps.get(b.first, 0) + bank.aligned(b.size)
        steps[b.last + 1] = steps.get(b.last + 1, 0) - bank.aligned(b.size)
    live = time = most = 0
    for at in sorted(steps):
        live += steps[at]
        if live > most:
            time, most = at, live
    sizes = np.array([bank.aligned(b.size) for b in buffers], np.int64)
    times, more = busiest(buffers, sizes, overlaps) if len(buffers) else ((), 0)
    return (times, more) if more > most else ((time,), most)


def holders(
    buffers: Sequence[Interval], bank: Bank = PLAIN, overlaps: Sequence[Overlap] = ()
) -> list[Interval]:
    """What lives at the peak, the largest first."""
    times, _ = peak(buffers, bank, overlaps)
    found = [b for b in buffers if b.size and touches(b, [(t, t) for t in times])]
    return sorted(found, key=lambda b: -b.size)


def plan(
    buffers: Sequence[Interval],
    *,
    steps: int = STEPS,
    bank: Bank = PLAIN,
    overlaps: Sequence[Overlap] = (),
) -> Arena:
    """The best plan of the portfolio, or what is found where that is over the bound.

    Args:
        buffers: What is to be placed.
        bank: Where; a plan may be larger than its capacity.
        overlaps: What may run at the same time.
        steps: Placements that are tried: by orders, at least one, and then by the search.
    """
    bound = lower_bound(buffers, bank, overlaps)
    best: Arena | None = None
    for name, key in [*ORDERS.items()][: max(1, steps // max(1, len(buffers)))]:
        order = sorted(range(len(buffers)), key=lambda i: key(buffers[i]))
        offsets = tuple(_place(buffers, order, bank, overlaps))
        made = Arena(offsets, _top(buffers, offsets, bank), bound, name)
        if best is None or made.plan < best.plan:
            best = made
        if best.plan == bound:
            break
    assert best is not None
    if any(bank.step(b.size) != ALIGNMENT for b in buffers):
        return best
    return _searched(buffers, best, steps, overlaps)


def _searched(
    buffers: Sequence[Interval], best: Arena, steps: int, overlaps: Sequence[Overlap]
) -> Arena:
    """A smaller plan, if the search finds one; it knows one alignment."""
    sized = [i for i, b in enumerate(buffers) if b.size]
    if best.plan == best.bound or len(sized) > LARGEST:
        return best
    kept = [buffers[i] for i in sized]
    first, last = lives(kept)
    size = np.array([PLAIN.aligned(b.size) for b in kept], np.int64)
    meets = np.stack([meetings(first, last, b, overlaps) for b in kept])
    found = Search(first, last, size, ALIGNMENT, meets).improved(best.bound, best.plan, steps)
    if found is None:
        return best
    offsets = [0] * len(buffers)
    for i, offset in zip(sized, found.tolist(), strict=True):
        offsets[i] = offset
    return Arena(tuple(offsets), _top(buffers, offsets, PLAIN), best.bound, "search")


def _top(buffers: Sequence[Interval], offsets: Sequence[int], bank: Bank) -> int:
    return max((o + bank.aligned(b.size) for o, b in zip(offsets, buffers, strict=True)), default=0)


def _place(
    buffers: Sequence[Interval], order: Sequence[int], bank: Bank, overlaps: Sequence[Overlap]
) -> list[int]:
    """Puts each buffer, in order, at the lowest offset that is free during its life."""
    shelf, offsets = Shelf(bank, len(buffers), overlaps), [0] * len(buffers)
    for i in order:
        offsets[i] = shelf.lowest(buffers[i])
        shelf.put(buffers[i], offsets[i])
    return offsets


@dataclass
class Shelf:
    """A bank that is being filled: the lives and the bytes of what lies there."""

    bank: Bank
    room: int
    overlaps: Sequence[Overlap]
    count: int = 0
    taken: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.taken = np.zeros((4, self.room), np.int64)

    def lowest(self, buffer: Interval) -> int:
        """The lowest offset at which a buffer finds room."""
        first, last, start, end = self.taken[:, : self.count]
        meets = meetings(first, last, buffer, self.overlaps)
        size, step = self.bank.aligned(buffer.size), self.bank.step(buffer.size)
        return _lowest(start[meets], end[meets], size, step)

    def put(self, buffer: Interval, offset: int) -> None:
        """Places a buffer."""
        end = offset + self.bank.aligned(buffer.size)
        self.taken[:, self.count] = buffer.first, buffer.last, offset, end
        self.count += 1


def _lowest(start: NDArray[np.int64], end: NDArray[np.int64], size: int, step: int) -> int:
    """The lowest multiple of `step` at which `size` bytes fit between the taken ranges."""
    by_start = np.argsort(start, kind="stable")
    start, reach = start[by_start], np.maximum.accumulate(end[by_start])
    floor = -(-np.concatenate((np.zeros(1, np.int64), reach)) // step) * step
    fits = np.flatnonzero(start - floor[:-1] >= size)
    return int(floor[fits[0]] if len(fits) else floor[-1])


def check(
    buffers: Sequence[Interval],
    offsets: Sequence[int],
    size: int,
    bank: Bank = PLAIN,
    overlaps: Sequence[Overlap] = (),
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

    def compare(i: int, others: Iterable[int]) -> None:
        for j in others:
            low, high = sorted((i, j), key=lambda k: offsets[k])
            if offsets[low] + taken[low] > offsets[high] and buffers[high].size:
                raise ValueError(f"{buffers[i].name} and {buffers[j].name} overlap")

    events = [(b.first, 1, i) for i, b in enumerate(buffers)]
    events += [(b.last + 1, 0, i) for i, b in enumerate(buffers)]
    live: set[int] = set()
    for _, starts, i in sorted(events):
        if not starts:
            live.discard(i)
            continue
        compare(i, live)
        live.add(i)
    for sides in overlaps:
        found = [[i for i, b in enumerate(buffers) if touches(b, side)] for side in sides]
        for at, side in enumerate(found):
            for i in side:
                compare(i, {j for other in found[:at] for j in other} - {i})
