"""What the target `c` makes of a module, as values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mllm_compiler.passes.pack_weights import PackedWeight
from mllm_compiler.weights import WeightStore


@dataclass(frozen=True, kw_only=True)
class Port:
    """An input or output of an entry; dims are expressions over the symbols."""

    name: str
    dtype: str
    shape: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CacheNames:
    """The cache of an entry, and what the model calls its tensors."""

    cache: str
    layers: int
    kv_heads: int
    head_dim: int
    max_tokens: int
    past_symbol: str
    key: str
    value: str
    out: str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A graph that can be run.

    Attributes:
        name: Its name.
        role: Its role in the pipeline.
        inputs: What it takes.
        outputs: What it gives.
        cache: The cache that it appends to.
        stages: How often each kernel is called.
        topology: The digest of its ops and how they are connected.
    """

    name: str
    role: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    cache: CacheNames | None
    stages: dict[str, int]
    topology: str


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """The size of the arena, the least it could be, and the share between them."""

    bound: int
    plan: int

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
        at = 0
        for weight in self.weights:
            yield memoryview(bytes(weight.offset - at))
            yield from weight.chunks(store)
            at = weight.offset + weight.nbytes
            store.release()
        yield memoryview(bytes(self.weight_bytes - at))
