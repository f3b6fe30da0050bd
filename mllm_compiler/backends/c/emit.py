"""Writes a stage table as `program.bin`."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.backends.artifact import CacheNames, Entry, inputs_of, outputs_of
from mllm_compiler.backends.c.artifact import CArtifact
from mllm_compiler.backends.c.program import Buckets, ProgramWriter
from mllm_compiler.backends.c.served import Served, served_of
from mllm_compiler.backends.c.table import EntryTable, Table, Tensor, cache_of, table_of
from mllm_compiler.dialects.mllm import CacheAttr
from mllm_compiler.passes.graphs import pipeline_of


def emit(module: ModuleOp) -> CArtifact:
    """The artifact of a lowered and planned module."""
    table = table_of(module)
    names = {c.graph.data: c for c in pipeline_of(module).caches}
    return CArtifact(
        program=write_program(table, served_of(module, table.entries)),
        entries=tuple(_entry(entry, names) for entry in table.entries),
        weights=table.weights,
        weight_bytes=table.weight_bytes,
        plan=table.plan,
    )


def write_program(table: Table, served: Sequence[Served]) -> bytes:
    """The bytes of a table; equal operands are one record, and variants follow what they serve."""
    writer, ids = ProgramWriter(table.bounds, table.least), dict[Tensor, int]()

    def number(tensor: Tensor) -> int:
        if tensor not in ids:
            ids[tensor] = writer.tensor(
                name=tensor.name,
                dtype=tensor.dtype,
                dims=tensor.dims,
                storage=tensor.storage,
                offset=tensor.offset,
                max_bytes=tensor.max_bytes,
            )
        return ids[tensor]

    def add(
        entry: EntryTable | Served, first: int, cache: int | None, buckets: Buckets | None = None
    ) -> None:
        writer.entry(
            name=entry.name,
            role=entry.role,
            first_stage=first,
            inputs=[number(t) for t in entry.inputs],
            outputs=[number(t) for t in entry.outputs],
            cache=cache,
            buckets=buckets,
        )

    caches = {
        name: writer.cache(
            cache, [None if t is None else number(t) for t in table.key_scales.get(name, ())]
        )
        for name, cache in table.caches.items()
    }
    before = {entry.variants[0].name: entry for entry in served}
    for entry in table.entries:
        if entry.name in before:
            add(before[entry.name], writer.stages, None, before[entry.name].buckets)
        first = writer.stages
        for stage in entry.stages:
            writer.stage(
                stage.kernel,
                [None if t is None else number(t) for t in stage.inputs],
                [number(t) for t in stage.outputs],
                stage.params,
                stage.location,
                fallback=stage.fallback,
            )
        add(entry, first, None if entry.cache is None else caches[entry.cache])
    return writer.finish(arena_bytes=table.plan.plan, weight_bytes=table.weight_bytes)


def _entry(entry: EntryTable, names: Mapping[str, CacheAttr]) -> Entry:
    return Entry(
        name=entry.name,
        role=entry.role,
        inputs=inputs_of(entry.graph),
        outputs=outputs_of(entry.graph),
        cache=_cache_names(entry, names),
        stages=dict(Counter(stage.kernel for stage in entry.stages)),
        topology=_topology(entry),
    )


def _topology(entry: EntryTable) -> str:
    """The digest of the entry's kernels, parameters and how they are connected; not of weights."""
    digest, numbers = hashlib.sha256(), dict[Tensor, int]()
    for stage in entry.stages:
        ends = [
            None if t is None else (numbers.setdefault(t, len(numbers)), [str(d) for d in t.dims])
            for t in (*stage.inputs, *stage.outputs)
        ]
        params = [(kind, str(value)) for kind, value in stage.params]
        digest.update(f"{stage.kernel} {ends} {params}\n".encode())
    return digest.hexdigest()


def _cache_names(entry: EntryTable, names: Mapping[str, CacheAttr]) -> CacheNames | None:
    cache = cache_of(entry.graph)
    if cache is None:
        return None
    called = names[entry.name]
    return CacheNames(
        cache=cache.cache.data,
        layers=cache.layers.data,
        kv_heads=cache.kv_heads.data,
        head_dim=cache.head_dim.data,
        max_tokens=cache.max_tokens.data,
        past_symbol=cache.past_symbol.data,
        key=called.key.data,
        value=called.value.data,
        out=called.out.data,
    )
