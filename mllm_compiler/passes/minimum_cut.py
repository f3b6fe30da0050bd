"""A graph of ops between a device and its host, and the cheapest way to divide it.

What ops cost on either side and what it costs to carry values over make a network of which each cut
is a division and has its cost (Stone 1977, "Multiprocessor scheduling with the aid of network flow
algorithms"). Costs are whole picoseconds, so that the cut is exact.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Final, cast

import networkx as nx

DEVICE: Final = "device"
HOST: Final = "host"

Cut = tuple[set[object], set[object]]


@dataclass(frozen=True)
class Work:
    """What an op costs on the host and on the device; None where it does not run."""

    host: int | None
    device: int | None


@dataclass(frozen=True)
class Link:
    """A value that ops hand on.

    Attributes:
        maker: The op that makes it; None: it comes from outside, on the host.
        readers: The ops that read it.
        into: What it costs to carry it to the device.
        back: What it costs to carry it to the host.
        is_result: Whether the host reads it behind all ops.
    """

    maker: int | None
    readers: tuple[int, ...]
    into: int
    back: int
    is_result: bool = False


@dataclass(frozen=True)
class Stored:
    """A weight; where both sides read it, each has its own, at a price."""

    readers: tuple[int, ...]
    price: int


@dataclass(frozen=True)
class Problem:
    """Ops by number, each behind those that it reads, what they hand on, and what they share."""

    works: tuple[Work, ...]
    links: tuple[Link, ...] = ()
    stored: tuple[Stored, ...] = ()

    def cost(self, device: Collection[int]) -> int:
        """The cost of a division, in which a value is carried over once in each direction.

        Args:
            device: The ops on the device; the others run on the host.
        """
        total = 0
        for number, work in enumerate(self.works):
            own = work.device if number in device else work.host
            assert own is not None, "an op is where it does not run"
            total += own
        for link in self.links:
            there = [reader in device for reader in link.readers]
            if link.maker in device:
                total += link.back if link.is_result or not all(there) else 0
            else:
                total += link.into if any(there) else 0
        return total + self.doubled(device)

    @cached_property
    def makers(self) -> tuple[tuple[int, ...], ...]:
        """By op, those that make what it reads."""
        found: list[list[int]] = [[] for _ in self.works]
        for link in self.links:
            for reader in link.readers:
                found[reader] += [] if link.maker is None else [link.maker]
        return tuple(map(tuple, found))

    def doubled(self, device: Collection[int]) -> int:
        """The price of what both sides store."""
        sides = [({r in device for r in one.readers}, one.price) for one in self.stored]
        return sum(price for both, price in sides if len(both) == 2)


def minimum_cut(problem: Problem) -> frozenset[int]:
    """The ops that run on the device in a division of the least cost."""
    net: nx.DiGraph[object] = nx.DiGraph()
    net.add_nodes_from((DEVICE, HOST))
    for number, work in enumerate(problem.works):
        _edge(net, DEVICE, number, work.host)
        _edge(net, number, HOST, work.device)
    for at, link in enumerate(problem.links):
        maker = HOST if link.maker is None else link.maker
        if link.maker is not None:
            _edge(net, maker, ("back", at), link.back)
            for reader in (*link.readers, *([HOST] if link.is_result else [])):
                _edge(net, ("back", at), reader, None)
        _edge(net, ("into", at), maker, link.into)
        for reader in link.readers:
            _edge(net, reader, ("into", at), None)
    for at, one in enumerate(problem.stored):
        _edge(net, ("there", at), ("here", at), one.price)
        for reader in one.readers:
            _edge(net, reader, ("there", at), None)
            _edge(net, ("here", at), reader, None)
    _, (device, _) = cast("tuple[int, Cut]", nx.minimum_cut(net, DEVICE, HOST))
    return frozenset(number for number in range(len(problem.works)) if number in device)


def _edge(net: nx.DiGraph[object], start: object, end: object, capacity: int | None) -> None:
    """What is cut where `start` is on the device and `end` is not; None: that must not be."""
    if capacity is None:
        net.add_edge(start, end)
    else:
        net.add_edge(start, end, capacity=capacity)
