"""What the target `c` makes of a module, as values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mllm_compiler.backends.artifact import CacheNames, Entry, Port, stream_weights
from mllm_compiler.passes.arena import Interval
from mllm_compiler.passes.pack_weights import PackedWeight
from mllm_compiler.weights import WeightStore

__all__ = ["CArtifact", "CacheNames", "Entry", "MemoryPlan", "Port"]


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """Where everything lies in the arena, and when.

    Attributes:
        bound: The least that its size could be.
        plan: Its size.
        buffers: What lies in it; time counts stages of all graphs.
        offsets: Where each lies.
        spans: The first and the last time of each graph.
        sides: Graphs that may run at the same time: of each overlap, the graphs of each side.
        banks: Where each bank starts in it and how much of it is used, where the model names banks.
    """

    bound: int
    plan: int
    buffers: tuple[Interval, ...]
    offsets: tuple[int, ...]
    spans: Mapping[str, tuple[int, int]]
    sides: Sequence[Sequence[Sequence[str]]] = ()
    banks: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])

    @property
    def gap(self) -> float:
        """The share by which the plan is over the bound."""
        return 0.0 if self.bound == 0 else self.plan / self.bound - 1


@dataclass(frozen=True, kw_only=True)
class CArtifact:
    """What the target makes of a module.

    Attributes:
        program: The bytes of `program.bin`.
        entries: The entries in the order of the program.
        weights: The weights in the order of their offsets.
        weight_bytes: Bytes of all weights, gaps included.
        plan: Figures of the memory plan.
    """

    program: bytes
    entries: tuple[Entry, ...]
    weights: tuple[PackedWeight, ...]
    weight_bytes: int
    plan: MemoryPlan

    def stream(self, store: WeightStore) -> Iterator[memoryview]:
        """The bytes of all weights in order, zeros between them; `weight_bytes` in all."""
        return stream_weights(self.weights, self.weight_bytes, store)
