"""Divisions of small random graphs; the truth is the best of all divisions, tried one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

import pytest

from mllm_compiler.passes.minimum_cut import Link, Problem, Stored, Work, minimum_cut
from mllm_compiler.passes.partition import Ops, Partition, divided


def problem(seed: int, most: int = 9) -> Problem:
    """Ops that one side or the other may refuse, values with up to two readers, shared weights."""
    rng = random.Random(seed)
    count = rng.randint(1, most)
    works = [Work(rng.randint(1, 30), rng.randint(1, 30)) for _ in range(count)]
    for at in range(count):
        refused = rng.random()
        if refused < 0.1:
            works[at] = Work(None, works[at].device)
        elif refused < 0.35:
            works[at] = Work(works[at].host, None)
    links: list[Link] = []
    for maker in (None, None, *range(count)):
        later = range(0 if maker is None else maker + 1, count)
        readers = tuple(sorted(rng.sample(later, min(len(later), rng.randint(0, 2)))))
        costs = rng.randint(0, 20), rng.randint(0, 20)
        links.append(Link(maker, readers, *costs, not readers or rng.random() < 0.1))
    stored = [rng.sample(range(count), min(count, rng.randint(1, 3))) for _ in range(3)]
    shared = tuple(Stored(tuple(sorted(readers)), rng.randint(0, 20)) for readers in stored)
    return Problem(tuple(works), tuple(links), shared)


def divisions(given: Problem) -> Iterator[Ops]:
    """All that put no op where it does not run."""
    for sides in product((False, True), repeat=len(given.works)):
        costs = [w.device if there else w.host for w, there in zip(given.works, sides, strict=True)]
        if None not in costs:
            yield frozenset(op for op, there in enumerate(sides) if there)


@pytest.mark.parametrize("seed", range(0, 150, 10))
def test_no_division_costs_less_than_the_minimum_cut(seed: int) -> None:
    for number in range(seed, seed + 10):
        given = problem(number)
        best = min(given.cost(device) for device in divisions(given))
        assert given.cost(minimum_cut(given)) == best


def test_with_calls_counted_the_best_division_is_found_but_for_few() -> None:
    """A search from the cut: of 150 graphs it may miss the best of two, by a tenth at most."""
    missed = 0
    for seed in range(150):
        given, startup = problem(seed), random.Random(-seed).randint(0, 30)
        found = divided(given, startup, 99)
        best = min(Partition(given, startup, device).cost for device in divisions(given))
        assert best <= found.cost <= 1.1 * best
        missed += found.cost > best
    assert missed <= 2


def test_costs_of_calls_are_what_goes_into_and_out_of_them() -> None:
    """Counted by hand: 0 and 2 on the device, 1 between them on the host."""
    works = (Work(9, 1), Work(5, None), Work(9, 2))
    links = (Link(None, (0,), 10, 0), Link(0, (1, 2), 40, 100), Link(1, (2,), 1000, 0))
    links += (Link(2, (), 0, 10000, is_result=True),)
    found = Partition(Problem(works, links), 100_000, frozenset({0, 2}))
    assert found.calls == (frozenset({0}), frozenset({2}))
    assert [found.taken(at) for at in (0, 1)] == [[0], [1, 2]]
    assert [found.given(at) for at in (0, 1)] == [[1], [3]]
    into, back = 10 + 40 + 1000, 100 + 10000
    assert found.cost == (1 + 5 + 2) + into + back + 2 * 100_000


def chain(*works: Work) -> Problem:
    count = len(works)
    links = [Link(at, (at + 1,), 1, 1) for at in range(count - 1)]
    return Problem(works, (Link(None, (0,), 1, 1), *links, Link(count - 1, (), 1, 1, True)))


HOST_ONLY = Work(1, None)


def test_what_saves_the_least_goes_back_where_there_are_too_many_calls() -> None:
    gains = (300, 100, 200)
    works = [work for gain in gains for work in (Work(gain, 1), HOST_ONLY)]
    given = chain(*works)
    assert [sorted(divided(given, 5, n).device) for n in (3, 2, 1)] == [[0, 2, 4], [0, 4], [0]]
    (island,) = divided(given, 5, 2).left()
    assert (island.ops, island.saves, island.costs) == (frozenset({2}), 99, 1 + 1 + 5)


def test_a_call_that_saves_less_than_it_costs_goes_back() -> None:
    given = chain(Work(50, 1), HOST_ONLY, Work(50, 1))
    assert divided(given, 46, 9).device == {0, 2}
    assert divided(given, 48, 9).device == set()
    assert divided(given, 48, 9, by_cost=False).device == {0, 2}
    assert [island.saves < island.costs for island in divided(given, 48, 9).left()] == [True] * 2


def test_what_only_the_device_runs_stays_there_at_any_price() -> None:
    given = chain(Work(None, 100), HOST_ONLY, Work(None, 100), HOST_ONLY)
    assert divided(given, 10_000, 1).device == {0, 2}


def test_a_weight_is_not_stored_twice_for_a_small_gain() -> None:
    """The second op gains 8 on the device; the first is bound to the host."""
    works, links = (HOST_ONLY, Work(10, 2)), (Link(None, (0, 1), 0, 0),)
    for price, device in ((7, {1}), (9, set[int]())):
        assert minimum_cut(Problem(works, links, (Stored((0, 1), price),))) == device
