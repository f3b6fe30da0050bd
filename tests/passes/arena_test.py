"""Plans of the arena: no overlap, never below the bound, the same for the same buffers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllm_compiler.passes import arena
from mllm_compiler.passes.arena import Interval
from mllm_compiler.passes.arena_search import Search
from tests.benchmarks.buffers import hard_instances

BUFFERS = st.lists(
    st.builds(
        lambda i, first, life, size: Interval(str(i), first, first + life, size),
        st.integers(0, 99),
        st.integers(0, 30),
        st.integers(0, 12),
        st.integers(0, 5000),
    ),
    max_size=40,
)


def brute_force_overlap(buffers: list[Interval], offsets: tuple[int, ...]) -> bool:
    """Whether two buffers share a byte at one time, pair by pair and byte range by byte range."""
    for i, a in enumerate(buffers):
        for j, b in enumerate(buffers[:i]):
            times = range(max(a.first, b.first), min(a.last, b.last) + 1)
            low, high = max(offsets[i], offsets[j]), min(offsets[i] + a.size, offsets[j] + b.size)
            if times and high > low:
                return True
    return False


@settings(max_examples=200, deadline=None)
@given(BUFFERS)
def test_a_plan_never_overlaps_and_meets_the_bound_from_above(buffers: list[Interval]) -> None:
    plan = arena.plan(buffers)
    arena.check(buffers, plan.offsets, plan.plan)
    assert not brute_force_overlap(buffers, plan.offsets)
    assert plan.bound <= plan.plan <= sum(arena.PLAIN.aligned(b.size) for b in buffers)
    assert all(o % arena.ALIGNMENT == 0 for o in plan.offsets)
    assert arena.plan(buffers) == plan


PIECES = arena.Bank(alignment=1024, large=2000)
"""Buffers from 2,000 bytes on have pieces of 1,024 to themselves."""


@settings(max_examples=200, deadline=None)
@given(BUFFERS)
def test_large_buffers_have_pieces_to_themselves(buffers: list[Interval]) -> None:
    """Beside brute force over buffers that are as large as their pieces."""
    plan = arena.plan(buffers, bank=PIECES)
    arena.check(buffers, plan.offsets, plan.plan, PIECES)
    rounded = [
        dataclasses.replace(b, size=-(-b.size // 1024) * 1024 if b.size >= 2000 else b.size)
        for b in buffers
    ]
    assert not brute_force_overlap(rounded, plan.offsets)
    for b, offset in zip(buffers, plan.offsets, strict=True):
        assert offset % (1024 if b.size >= 2000 else 64) == 0
    assert plan.plan >= plan.bound >= arena.lower_bound(buffers)
    for b, offset in zip(rounded, plan.offsets, strict=True):
        assert offset + b.size <= plan.plan


def test_the_checker_refuses_what_a_bank_does_not_allow() -> None:
    pair = [Interval("a", 0, 1, 2000), Interval("b", 0, 1, 64)]
    arena.check(pair, (0, 2048), 2112, PIECES)
    wide = [Interval("a", 0, 1, 2100), Interval("b", 0, 1, 64)]
    arena.check(wide, (0, 2112), 3072)
    with pytest.raises(ValueError, match="overlap"):
        arena.check(wide, (0, 2112), 3072, PIECES)
    with pytest.raises(ValueError, match="a at 64 is misaligned"):
        arena.check(pair, (64, 0), 3072, PIECES)
    with pytest.raises(ValueError, match="2112 bytes leave a bank of 2111"):
        arena.check(pair, (0, 2048), 2112, arena.Bank(capacity=2111))


def test_what_lives_at_the_peak_is_named_the_largest_first() -> None:
    buffers = [Interval("a", 0, 1, 64), Interval("b", 1, 2, 256), Interval("c", 2, 2, 128)]
    assert arena.peak(buffers) == ((2,), 384)
    assert [b.name for b in arena.holders(buffers)] == ["b", "c"]
    assert arena.peak([]) == ((0,), 0)


@settings(max_examples=200, deadline=None)
@given(BUFFERS, st.data())
def test_the_checker_agrees_with_brute_force_on_any_offsets(
    buffers: list[Interval], data: st.DataObject
) -> None:
    steps = st.integers(0, 60).map(lambda n: n * arena.ALIGNMENT)
    offsets = tuple(data.draw(steps) for _ in buffers)
    size = max((o + b.size for o, b in zip(offsets, buffers, strict=True)), default=0)
    if brute_force_overlap(buffers, offsets):
        with pytest.raises(ValueError, match="overlap"):
            arena.check(buffers, offsets, size)
    else:
        arena.check(buffers, offsets, size)


def test_the_bound_is_the_most_that_lives_at_once() -> None:
    buffers = [Interval("a", 0, 1, 64), Interval("b", 1, 2, 128), Interval("c", 2, 3, 64)]
    assert arena.lower_bound(buffers) == 192
    assert arena.plan(buffers).plan == 192


SMALL = st.lists(
    st.builds(
        lambda first, life, size: Interval("", first, first + life, 64 * size),
        st.integers(0, 5),
        st.integers(0, 4),
        st.integers(1, 6),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=100, deadline=None)
@given(SMALL)
def test_the_search_finds_the_least_plan(buffers: list[Interval]) -> None:
    """Beside all orders: in one of them each buffer lies as low as in a least plan."""
    orders = permutations(range(len(buffers)))
    least = min(
        max(o + b.size for o, b in zip(lowest_offsets(buffers, order), buffers, strict=True))
        for order in orders
    )
    assert arena.plan(buffers).plan == least
    first, last, size = (
        np.array([getattr(b, k) for b in buffers]) for k in ("first", "last", "size")
    )
    worst = int(size.sum()) + 64
    found = Search(first, last, size, 64).improved(arena.lower_bound(buffers), worst, 2000)
    assert found is not None
    assert int((found + size).max()) == least


@settings(max_examples=200, deadline=None)
@given(BUFFERS)
def test_the_search_answers_only_with_smaller_plans_that_fit(buffers: list[Interval]) -> None:
    buffers = [dataclasses.replace(b, size=arena.PLAIN.aligned(b.size)) for b in buffers if b.size]
    if not buffers:
        return
    first, last, size = np.array([(b.first, b.last, b.size) for b in buffers], np.int64).T
    bound = arena.lower_bound(buffers)
    plan = bound + 64 * (len(buffers) % 3)
    found = Search(first, last, size, 64).improved(bound, plan, 400)
    if found is not None:
        top = int((found + size).max())
        assert bound <= top < plan
        arena.check(buffers, found.tolist(), top)


def lowest_offsets(buffers: list[Interval], order: Sequence[int]) -> list[int]:
    """Each in turn at the lowest step of 64 bytes where it overlaps none that lives with it."""
    offsets: dict[int, int] = {}
    for i in order:
        taken = [
            (offset, offset + buffers[j].size)
            for j, offset in offsets.items()
            if buffers[i].first <= buffers[j].last and buffers[j].first <= buffers[i].last
        ]
        at = 0
        while any(at < end and start < at + buffers[i].size for start, end in taken):
            at += 64
        offsets[i] = at
    return [offsets[i] for i in range(len(buffers))]


def test_a_gap_of_greedy_orders_is_searched() -> None:
    """An instance of MiniMalloc's: the best greedy order needs 1.3 times the bound."""
    buffers = hard_instances()["D"]
    greedy, found = arena.plan(buffers, steps=0), arena.plan(buffers)
    arena.check(buffers, found.offsets, found.plan)
    assert found.order == "search"
    assert found.plan < greedy.plan
    assert found.gap < 0.15
    assert arena.plan(buffers) == found


def test_buffers_that_do_not_meet_share_their_place() -> None:
    buffers = [Interval(str(i), i, i, 1000) for i in range(10)]
    assert arena.plan(buffers).plan == arena.PLAIN.aligned(1000)


def test_the_checker_refuses_what_is_misaligned_or_outside() -> None:
    buffer = [Interval("a", 0, 1, 64)]
    for offset, size in ((32, 128), (64, 64), (-64, 64)):
        with pytest.raises(ValueError, match="misaligned or leaves"):
            arena.check(buffer, (offset,), size)


def test_gap_is_the_share_over_the_bound() -> None:
    plan = arena.plan([Interval("a", 0, 1, 64)])
    assert plan.gap == 0
    assert dataclasses.replace(plan, plan=96).gap == pytest.approx(0.5)
