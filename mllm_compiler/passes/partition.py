"""Divides the ops of a graph between a device and its host: by cost, in few calls.

The minimum cut is the best division where a call costs nothing and the device keeps what it makes.
From there on calls are counted, with all that each takes and gives: a call that saves less than it
costs goes back to the host, and ops that cost more apart from the device than on it go there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import cast

import networkx as nx

from mllm_compiler.passes.device_calls import phases
from mllm_compiler.passes.minimum_cut import Problem, minimum_cut

Ops = frozenset[int]


@dataclass(frozen=True)
class Island:
    """Ops that the device could run and the host does.

    Attributes:
        ops: Which.
        saves: What they would cost less on the device, in picoseconds.
        costs: What calls and copies would cost more.
    """

    ops: Ops
    saves: int
    costs: int


@dataclass(frozen=True)
class Partition:
    """A division of a problem.

    Attributes:
        problem: The problem.
        startup: What a call costs, in picoseconds.
        device: The ops on the device.
    """

    problem: Problem
    startup: int
    device: Ops

    @cached_property
    def calls(self) -> tuple[Ops, ...]:
        """The ops of each call of the device, in order."""
        made: dict[int, set[int]] = {}
        for op, phase in self._phases.items():
            if op in self.device:
                made.setdefault(phase, set()).add(op)
        return tuple(frozenset(made[phase]) for phase in sorted(made))

    @cached_property
    def cost(self) -> int:
        """What all of it costs, in picoseconds."""
        own = Problem(self.problem.works).cost(self.device)
        carried = sum(
            len(into) * link.into + back * link.back
            for link, into, back in zip(self.problem.links, self._into, self._back, strict=True)
        )
        doubled = self.problem.doubled(self.device)
        return own + carried + doubled + self.startup * len(self.calls)

    def taken(self, at: int) -> list[int]:
        """The links that a call takes, by number."""
        phase = self._phases[next(iter(self.calls[at]))]
        return [number for number, phases in enumerate(self._into) if phase in phases]

    def given(self, at: int) -> list[int]:
        """The links that a call gives back."""
        links = enumerate(self.problem.links)
        return [n for n, link in links if self._back[n] and link.maker in self.calls[at]]

    def moved(self, ops: Ops) -> Partition:
        """The partition in which ops are on the other side."""
        return Partition(self.problem, self.startup, self.device ^ ops)

    def left(self) -> list[Island]:
        """What the device could run and does not, in connected pieces."""
        able = {n for n, work in enumerate(self.problem.works) if work.device is not None}
        net: nx.Graph[int] = nx.Graph()
        net.add_nodes_from(able - self.device)
        for link in self.problem.links:
            ends = [n for n in (link.maker, *link.readers) if n is not None and n in net]
            net.add_edges_from(pairwise(ends))
        pieces = cast("Iterable[set[int]]", nx.connected_components(net))
        return [self._island(frozenset(ops)) for ops in pieces]

    def _island(self, ops: Ops) -> Island:
        works = [self.problem.works[op] for op in ops]
        saves = sum((work.host or 0) - (work.device or 0) for work in works)
        return Island(ops, saves, self.moved(ops).cost - self.cost + saves)

    @cached_property
    def _phases(self) -> Mapping[int, int]:
        return phases(
            range(len(self.problem.works)),
            self.problem.makers.__getitem__,
            lambda op: int(op in self.device),
            2,
        )

    @cached_property
    def _into(self) -> list[set[int]]:
        """The calls, by phase, that take each link."""
        return [
            {self._phases[r] for r in link.readers if r in self.device}
            - ({self._phases[link.maker]} if link.maker in self.device else set())
            for link in self.problem.links
        ]

    @cached_property
    def _back(self) -> list[bool]:
        """Whether the call that makes a link gives it back."""
        return [
            link.maker in self.device
            and (
                link.is_result
                or any(self._phases[r] != self._phases[link.maker] for r in link.readers)
            )
            for link in self.problem.links
        ]


def divided(problem: Problem, startup: int, most_calls: int, *, by_cost: bool = True) -> Partition:
    """A division that no call given back, and no island taken, makes cheaper.

    Args:
        problem: The ops and what they hand on.
        startup: What a call costs, in picoseconds.
        most_calls: The calls that there may be; the least gainful go back to the host.
        by_cost: Whether costs decide; otherwise the device gets all that it runs.
    """
    able = (n for n, work in enumerate(problem.works) if work.device is not None)
    start = minimum_cut(problem) if by_cost else frozenset(able)
    found = _fewer(Partition(problem, startup, start), most_calls)
    while by_cost:
        steps = [step for step in _steps(found) if len(step.calls) <= most_calls]
        best = min(steps, key=_price, default=found)
        if _price(best) >= _price(found):
            break
        found = best
    return found


def _price(found: Partition) -> tuple[int, int]:
    """What is cheaper is better, then what has more on the device."""
    return found.cost, -len(found.device)


def _fewer(found: Partition, most_calls: int) -> Partition:
    """Gives calls back while there are too many, those first that cost the least to lose."""
    while len(found.calls) > most_calls:
        steps = list(_given_back(found))
        if not steps:
            break
        found = min(steps, key=_price)
    return found


def _steps(found: Partition) -> Iterator[Partition]:
    yield from _given_back(found)
    yield from (found.moved(island.ops) for island in found.left())


def _given_back(found: Partition) -> Iterator[Partition]:
    works = found.problem.works
    for ops in found.calls:
        if all(works[op].host is not None for op in ops):
            yield found.moved(ops)
