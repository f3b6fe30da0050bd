"""When buffers live: from a first to a last time, on an axis that graphs follow one another on.

Graphs that may run at the same time are the sides of an overlap: what lives while one side runs may
live at any time of another side. So two buffers meet where their times do, or where they live in
two sides of one overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Span = tuple[int, int]
"""A first and a last time, both included."""

Overlap = tuple[tuple[Span, ...], ...]
"""Sides that may run at the same time; a side is one graph after another, by their spans."""

Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Interval:
    """A buffer: its life, its size in bytes, and whether a device reads or writes it itself."""

    name: str
    first: int
    last: int
    size: int
    device: bool = False


def touches(buffer: Interval, spans: Sequence[Span]) -> bool:
    """Whether a buffer lives at a time of the spans."""
    return any(buffer.first <= last and buffer.last >= first for first, last in spans)


def beside(buffer: Interval, overlaps: Sequence[Overlap]) -> list[Span]:
    """The spans that may run while a buffer lives, other than at its own time."""
    found: list[Span] = []
    for sides in overlaps:
        for side in sides:
            if touches(buffer, side):
                found += [span for other in sides if other is not side for span in other]
    return found


def meetings(
    first: Ints, last: Ints, buffer: Interval, overlaps: Sequence[Overlap]
) -> NDArray[np.bool_]:
    """Which of the lives from `first` to `last` a buffer meets."""
    meets: Flags = (first <= buffer.last) & (last >= buffer.first)
    for start, end in beside(buffer, overlaps):
        meets = meets | ((first <= end) & (last >= start))
    return meets


def lives(buffers: Sequence[Interval]) -> tuple[Ints, Ints]:
    """The first and the last times of buffers."""
    first = np.array([b.first for b in buffers], np.int64)
    return first, np.array([b.last for b in buffers], np.int64)


def busiest(
    buffers: Sequence[Interval], sizes: Ints, overlaps: Sequence[Overlap]
) -> tuple[tuple[int, ...], int]:
    """Times, one of each side of an overlap, at which together much lives; and how much.

    The time of each side is chosen for what the others' times leave, until no choice changes. So it
    is no more than what must have a place at once, whether or not other times would show more.
    """
    first, last = lives(buffers)
    best, most = tuple[int, ...](), 0
    for sides in overlaps:
        ticks = [_ticks(first, side) for side in sides]
        alive = [(first <= t[:, None]) & (last >= t[:, None]) for t in ticks]
        chosen: list[int | None] = [None] * len(sides)
        changed = True
        while changed:
            changed = False
            for i, rows in enumerate(alive):
                others: Flags = np.zeros(len(buffers), np.bool_)
                for j, at in enumerate(chosen):
                    others = others if at is None or j == i else others | alive[j][at]
                gains = (rows & ~others) @ sizes
                at = chosen[i]
                if at is None or gains.max() > gains[at]:
                    chosen[i], changed = int(gains.argmax()), True
        total: Any = np.zeros(len(buffers), np.bool_)
        for rows, at in zip(alive, chosen, strict=True):
            total = total | rows[at]
        if int(total @ sizes) > most:
            times = {int(t[at]) for t, at in zip(ticks, chosen, strict=True) if at is not None}
            best, most = tuple(sorted(times)), int(total @ sizes)
    return best, most


def _ticks(first: Ints, side: Sequence[Span]) -> Ints:
    """The times of a side at which a graph or a buffer starts: at no other one does more live."""
    starts = np.array([start for start, _ in side], np.int64)
    inside = [first[(first >= start) & (first <= end)] for start, end in side]
    return np.unique(np.concatenate((starts, *inside)))
