"""Plans of graphs that overlap and of several banks, beside brute force over every moment."""

from __future__ import annotations

import dataclasses
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllm_compiler.passes import arena
from mllm_compiler.passes.arena import Arena, Bank
from mllm_compiler.passes.arena_search import Search
from mllm_compiler.passes.banks import OverfullError, check_banks, plan_banks
from mllm_compiler.passes.intervals import Interval, Overlap, lives, meetings

BUFFERS = st.lists(
    st.builds(
        lambda i, first, life, size, device: Interval(str(i), first, first + life, size, device),
        st.integers(0, 99),
        st.integers(0, 14),
        st.integers(0, 5),
        st.integers(0, 3000),
        st.booleans(),
    ),
    max_size=16,
)

GRAPHS = ((0, 4), (5, 9), (10, 14), (15, 19))
"""The stages of four graphs."""

OVERLAPS = st.lists(
    st.sampled_from([(0, 1), (1, 3), (0, 2), (0, 1, 2)]).map(
        lambda names: tuple((GRAPHS[n],) for n in names)
    ),
    max_size=2,
)


def moments(overlaps: list[Overlap]) -> list[set[int]]:
    """Every set of stages that can be running at one time."""
    found = [{tick} for tick in range(20)]
    for sides in overlaps:
        ticks = [[t for a, b in side for t in range(a, b + 1)] for side in sides]
        found += [set(chosen) for chosen in product(*ticks)]
    return found


def at(buffers: list[Interval], moment: set[int]) -> list[int]:
    """What lives at a moment."""
    alive = [any(b.first <= tick <= b.last for tick in moment) for b in buffers]
    return [i for i, lives_then in enumerate(alive) if lives_then]


def shares(buffers: list[Interval], offsets: tuple[int, ...], overlaps: list[Overlap]) -> bool:
    """Whether at some moment two buffers that live share a byte."""
    for moment in moments(overlaps):
        for i, j in combinations(at(buffers, moment), 2):
            low, high = sorted((i, j), key=lambda k: offsets[k])
            end = offsets[low] + buffers[low].size
            if end > offsets[high] and buffers[high].size:
                return True
    return False


@settings(max_examples=150, deadline=None)
@given(BUFFERS, OVERLAPS)
def test_graphs_that_overlap_never_share_bytes(
    buffers: list[Interval], overlaps: list[Overlap]
) -> None:
    plan = arena.plan(buffers, overlaps=overlaps)
    arena.check(buffers, plan.offsets, plan.plan, overlaps=overlaps)
    assert not shares(buffers, plan.offsets, overlaps)
    assert arena.lower_bound(buffers) <= plan.bound <= plan.plan
    assert arena.plan(buffers, overlaps=overlaps) == plan


@settings(max_examples=150, deadline=None)
@given(BUFFERS, OVERLAPS)
def test_the_bound_of_graphs_that_overlap_is_what_lives_at_some_moment(
    buffers: list[Interval], overlaps: list[Overlap]
) -> None:
    size = [arena.PLAIN.aligned(b.size) for b in buffers]
    live = [sum(size[i] for i in at(buffers, moment)) for moment in moments(overlaps)]
    times, bound = arena.peak(buffers, overlaps=overlaps)
    assert bound <= max(live)
    assert bound == sum(size[i] for i in at(buffers, set(times)))
    found = arena.holders(buffers, overlaps=overlaps)
    assert sum(arena.PLAIN.aligned(b.size) for b in found) == bound


@settings(max_examples=150, deadline=None)
@given(BUFFERS, OVERLAPS, st.data())
def test_the_checker_agrees_with_brute_force_on_any_offsets(
    buffers: list[Interval], overlaps: list[Overlap], data: st.DataObject
) -> None:
    offsets = tuple(64 * data.draw(st.integers(0, 120)) for _ in buffers)
    size = max((o + b.size for o, b in zip(offsets, buffers, strict=True)), default=0)
    if shares(buffers, offsets, overlaps):
        with pytest.raises(ValueError, match="overlap"):
            arena.check(buffers, offsets, size, overlaps=overlaps)
    else:
        arena.check(buffers, offsets, size, overlaps=overlaps)


def test_the_bound_counts_the_peaks_of_both_graphs() -> None:
    """Two graphs of 100 and 50 pieces at their peaks, each at another of their stages."""
    buffers = [
        Interval("a", 0, 2, 6400),
        Interval("b", 3, 4, 640),
        Interval("c", 5, 6, 64),
        Interval("d", 7, 9, 3200),
    ]
    overlaps = [(((0, 4),), ((5, 9),))]
    assert arena.peak(buffers) == ((0,), 6400)
    assert arena.peak(buffers, overlaps=overlaps) == ((0, 7), 9600)
    assert arena.plan(buffers, overlaps=overlaps).plan == 9600
    assert [b.name for b in arena.holders(buffers, overlaps=overlaps)] == ["a", "d"]


@settings(max_examples=60, deadline=None)
@given(BUFFERS, OVERLAPS)
def test_the_search_knows_what_overlaps(buffers: list[Interval], overlaps: list[Overlap]) -> None:
    sized = [dataclasses.replace(b, size=arena.PLAIN.aligned(b.size)) for b in buffers if b.size]
    if not sized:
        return
    first, last = lives(sized)
    size = np.array([b.size for b in sized], np.int64)
    meets = np.stack([meetings(first, last, b, overlaps) for b in sized])
    bound = arena.lower_bound(sized, overlaps=overlaps)
    found = Search(first, last, size, 64, meets).improved(bound, int(size.sum()) + 64, 300)
    assert found is not None
    assert not shares(sized, tuple(found.tolist()), overlaps)


FAST = Bank(capacity=2048, name="fast")
DEVICE = Bank(capacity=8192, alignment=1024, large=2000, name="device", least=500, contiguous=True)
REST = Bank(name="rest", alignment=256, large=1000)


def planned(
    buffers: list[Interval], banks: list[Bank], overlaps: list[Overlap]
) -> Arena | OverfullError:
    """A plan, or why there is none."""
    try:
        return plan_banks(buffers, banks, overlaps=overlaps)
    except OverfullError as refused:
        return refused


@settings(max_examples=200, deadline=None)
@given(BUFFERS, OVERLAPS, st.permutations([FAST, DEVICE, REST]))
def test_every_buffer_lies_in_a_bank_that_takes_it(
    buffers: list[Interval], overlaps: list[Overlap], banks: list[Bank]
) -> None:
    plan = planned(buffers, banks, overlaps)
    if isinstance(plan, OverfullError):
        small = any(0 < b.size < 500 for b in buffers if b.device)
        assert small if plan.bank is None else plan.needed > 8192
        assert plan.bank in (None, DEVICE)
        assert all(b.device for b in plan.holders) or plan.bank
        return
    check_banks(buffers, plan, overlaps)
    assert not shares(buffers, plan.offsets, overlaps)
    assert plan.bound <= plan.plan
    for part in plan.parts:
        for i in part.buffers:
            b, offset = buffers[i], plan.offsets[i] - part.start
            large = b.size >= part.bank.large
            assert offset % (part.bank.alignment if large else 64) == 0
            assert 0 <= offset <= offset + b.size <= part.size
            assert b.size >= part.bank.least or not b.size
            assert part.bank is DEVICE or not b.device
        assert part.bank.capacity is None or part.size <= part.bank.capacity
        assert part.start % part.bank.alignment == 0 or not part.buffers
    parts = sorted((p.start, p.start + p.size) for p in plan.parts if p.buffers)
    assert all(end <= start for (_, end), (start, _) in pairwise(parts))


def test_the_bank_that_is_named_first_is_filled_first() -> None:
    buffers = [Interval(str(i), 0, 1, 1024) for i in range(4)]
    plan = plan_banks(buffers, [FAST, REST])
    assert [len(part.buffers) for part in plan.parts] == [2, 2]
    assert [(part.start, part.size) for part in plan.parts] == [(0, 2048), (2048, 2048)]


def test_a_buffer_that_found_no_room_comes_first_the_next_time() -> None:
    """By size, "wide" takes the one place that only "far" needs."""
    strict = Bank(capacity=1024, name="strict", least=900)
    small = Bank(capacity=1024, name="small")
    buffers = [
        Interval("wide", 0, 0, 512),
        Interval("far", 0, 0, 1024),
        Interval("thin", 0, 0, 512),
    ]
    plan = plan_banks(buffers, [small, strict])
    assert [part.buffers for part in plan.parts] == [(0, 2), (1,)]


def test_the_checker_refuses_what_banks_do_not_allow() -> None:
    buffers = [Interval("a", 0, 1, 2000, device=True), Interval("b", 0, 1, 64)]
    plan = plan_banks(buffers, [DEVICE, REST])
    check_banks(buffers, plan)
    device, rest = plan.parts
    swapped = (dataclasses.replace(device, buffers=(1,)), dataclasses.replace(rest, buffers=(0,)))
    lost = (device, dataclasses.replace(rest, buffers=()))
    moved = (device, dataclasses.replace(rest, start=rest.start - 64))
    for parts, text in ((swapped, "may not lie"), (lost, "no bank"), (moved, "misplaced")):
        with pytest.raises(ValueError, match=text):
            check_banks(buffers, dataclasses.replace(plan, parts=parts))
    longer = (device, dataclasses.replace(rest, size=rest.size + 64))
    with pytest.raises(ValueError, match="the parts end at"):
        check_banks(buffers, dataclasses.replace(plan, parts=longer))
