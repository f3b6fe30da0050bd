"""What every target says of its entries and weights."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects.types import element_of, shape_of
from mllm_compiler.passes.graphs import (
    argument_names,
    block_of,
    result_names,
    return_of,
    role_of,
)
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


def entry_of(graph: FuncOp, ops: Sequence[Operation], called: Iterable[str]) -> Entry:
    """The entry of a graph whose ops are these, and which calls these operators."""
    topology = hashlib.sha256("\n".join(str(op) for op in ops).encode())
    return Entry(
        name=graph.sym_name.data,
        role=role_of(graph),
        inputs=inputs_of(graph),
        outputs=outputs_of(graph),
        cache=None,
        stages=dict(Counter(called)),
        topology=topology.hexdigest(),
    )


def inputs_of(graph: FuncOp) -> tuple[Port, ...]:
    """What a graph takes."""
    return _ports(block_of(graph).args, argument_names(graph))


def outputs_of(graph: FuncOp) -> tuple[Port, ...]:
    """What a graph gives."""
    return _ports(return_of(graph).operands, result_names(graph))


def _ports(values: Sequence[SSAValue], names: Sequence[str]) -> tuple[Port, ...]:
    return tuple(
        Port(name=n, dtype=str(element_of(v)), shape=tuple(str(d) for d in shape_of(v)))
        for v, n in zip(values, names, strict=True)
    )


def stream_weights(
    weights: Sequence[PackedWeight], total: int, store: WeightStore
) -> Iterator[memoryview]:
    """The bytes of all weights in the order of their offsets, zeros between; `total` in all."""
    at = 0
    for weight in weights:
        yield memoryview(bytes(weight.offset - at))
        yield from weight.chunks(store)
        at = weight.offset + weight.nbytes
        store.release()
    yield memoryview(bytes(total - at))
