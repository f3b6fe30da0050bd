"""Divides buffers among several banks, and plans each of these for itself.

A buffer goes to the first bank that takes it and has room, in the order of the banks; so what is
named first is filled first. Orders of buffers are tried as `arena.py` has them, and then orders in
which those come first that found no room before. The banks of a plan stand one behind the other in
the arena, each from a multiple of its alignment on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mllm_compiler.passes.arena import (
    ORDERS,
    STEPS,
    Arena,
    Bank,
    Part,
    Shelf,
    check,
    holders,
    lower_bound,
    plan,
)
from mllm_compiler.passes.intervals import Interval, Overlap

RETRIES: Final = 40
"""Orders that are tried where no order of the portfolio leaves every buffer a place."""


@dataclass(eq=False)
class OverfullError(Exception):
    """A bank has too little room for what lies in it; or none takes a buffer (`bank` is None).

    Attributes:
        bank: The bank.
        needed: The bytes of what lies in it, as it was planned.
        holders: What holds its peak, the largest first; or the buffer.
    """

    bank: Bank | None
    needed: int
    holders: tuple[Interval, ...]


def takes(bank: Bank, buffer: Interval, banks: Sequence[Bank]) -> bool:
    """Whether a buffer may lie in a bank."""
    reached = bank.contiguous or not buffer.device or not any(b.contiguous for b in banks)
    return reached and (buffer.size >= bank.least or not buffer.size)


def plan_banks(
    buffers: Sequence[Interval],
    banks: Sequence[Bank],
    *,
    overlaps: Sequence[Overlap] = (),
    steps: int = STEPS,
) -> Arena:
    """A plan that keeps within the banks.

    Its bound is what no plan of whatever banks is below, each buffer as its best bank rounds it.

    Raises:
        OverfullError: None was found.
    """
    open_to = [[k for k, bank in enumerate(banks) if takes(bank, b, banks)] for b in buffers]
    for b, choices in zip(buffers, open_to, strict=True):
        if not choices:
            raise OverfullError(None, b.size, (b,))
    homes = _divided(buffers, banks, open_to, overlaps)
    offsets, parts, orders, end = [0] * len(buffers), list[Part](), list[str](), 0
    for k, bank in enumerate(banks):
        own = [i for i, home in enumerate(homes) if home == k]
        inside = [buffers[i] for i in own]
        made = plan(inside, steps=steps, bank=bank, overlaps=overlaps)
        if bank.capacity is not None and made.plan > bank.capacity:
            raise OverfullError(bank, made.plan, tuple(holders(inside, bank, overlaps)))
        start = -(-end // bank.alignment) * bank.alignment
        for i, offset in zip(own, made.offsets, strict=True):
            offsets[i] = start + offset
        end = start + made.plan if inside else end
        parts.append(Part(bank, start, made.plan, tuple(own)))
        orders.append(made.order)
    rounded = [
        Interval(b.name, b.first, b.last, min(banks[k].aligned(b.size) for k in choices))
        for b, choices in zip(buffers, open_to, strict=True)
    ]
    bound = lower_bound(rounded, overlaps=overlaps)
    return Arena(tuple(offsets), end, bound, ", ".join(orders), tuple(parts))


def _divided(
    buffers: Sequence[Interval],
    banks: Sequence[Bank],
    open_to: Sequence[Sequence[int]],
    overlaps: Sequence[Overlap],
) -> list[int]:
    """The bank of each buffer: of the fewest bytes without room, then of the least size."""
    best, best_size = list[int](), (0, 0)
    failed = [0] * len(buffers)
    tried = list(ORDERS.values()) + [ORDERS["size"]] * RETRIES
    for attempt, key in enumerate(tried):
        retry = attempt >= len(ORDERS)
        if retry and not best_size[0]:
            break
        order = sorted(
            range(len(buffers)), key=lambda i: (-failed[i] if retry else 0, *key(buffers[i]))
        )
        homes, left, size = _filled(buffers, order, banks, open_to, overlaps)
        for i in left:
            failed[i] += 1
        lacking = sum(buffers[i].size for i in left)
        if not best or (lacking, size) < best_size:
            best, best_size = homes, (lacking, size)
    return best


def _filled(
    buffers: Sequence[Interval],
    order: Sequence[int],
    banks: Sequence[Bank],
    open_to: Sequence[Sequence[int]],
    overlaps: Sequence[Overlap],
) -> tuple[list[int], list[int], int]:
    """The banks of buffers that are placed in an order, those without room, and all bytes taken."""
    shelves = [Shelf(bank, len(buffers), overlaps) for bank in banks]
    homes, left = [0] * len(buffers), list[int]()
    tops = [0] * len(banks)
    for i in order:
        b = buffers[i]
        for k in open_to[i]:
            offset = shelves[k].lowest(b)
            top, capacity = offset + banks[k].aligned(b.size), banks[k].capacity
            if capacity is None or top <= capacity:
                break
        else:
            left.append(i)
            k = open_to[i][-1]
            offset = shelves[k].lowest(b)
            top = offset + banks[k].aligned(b.size)
        shelves[k].put(b, offset)
        homes[i], tops[k] = k, max(tops[k], top)
    return homes, left, sum(tops)


def check_banks(buffers: Sequence[Interval], made: Arena, overlaps: Sequence[Overlap] = ()) -> None:
    """Checks a plan of several banks without trust in how it was made.

    Raises:
        ValueError: Parts share bytes, a buffer lies in none or where it may not, or a part is wrong
            as `check` says.
    """
    banks, end = [part.bank for part in made.parts], 0
    homes = sorted(i for part in made.parts for i in part.buffers)
    if homes != list(range(len(buffers))):
        raise ValueError("a buffer has no bank, or several")
    for part in made.parts:
        if not part.buffers:
            continue
        if part.start < end or part.start % part.bank.alignment:
            raise ValueError(f"the part of {part.bank.name} at {part.start} is misplaced")
        end = part.start + part.size
        inside = [buffers[i] for i in part.buffers]
        for b in inside:
            if not takes(part.bank, b, banks):
                raise ValueError(f"{b.name} may not lie in {part.bank.name}")
        offsets = [made.offsets[i] - part.start for i in part.buffers]
        check(inside, offsets, part.size, part.bank, overlaps)
    if end != made.plan:
        raise ValueError(f"the parts end at {end}, the arena at {made.plan}")
