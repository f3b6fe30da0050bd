"""Writes the stage table of a lowered and planned module."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from mllm_compiler.backends.c import program
from mllm_compiler.backends.c.artifact import CacheNames, CArtifact, Entry, MemoryPlan, Port
from mllm_compiler.backends.c.program import Cache, ProgramWriter
from mllm_compiler.dialects import cpu
from mllm_compiler.dialects.cpu.weights import PLAIN
from mllm_compiler.dialects.types import element_of, shape_of
from mllm_compiler.passes.graphs import (
    argument_names,
    block_of,
    entry_order,
    graphs,
    location_of,
    pipeline_of,
    result_names,
    return_of,
    role_of,
    symbol_bound,
)
from mllm_compiler.passes.pack_weights import ALIGNMENT, PackedWeight
from mllm_compiler.passes.plan_memory import IO_SLOT, PLAN, SLOT, nbytes, root, stages_of


def emit(module: ModuleOp) -> CArtifact:
    """Writes the stage table of a lowered and planned module."""
    emitter = _Emitter(module)
    entries = tuple(emitter.entry(graph) for graph in entry_order(module))
    plan = memory_plan(module)
    weight_bytes = emitter.weight_bytes
    return CArtifact(
        program=emitter.writer.finish(arena_bytes=plan.plan, weight_bytes=weight_bytes),
        entries=entries,
        weights=tuple(emitter.weights.values()),
        weight_bytes=weight_bytes,
        plan=plan,
    )


def memory_plan(module: ModuleOp) -> MemoryPlan:
    """The figures that `plan-memory` left in the module."""
    plan = module.attributes.get(PLAN)
    assert isinstance(plan, DictionaryAttr), "plan-memory has not run"
    bound, size = plan.data["bound"], plan.data["plan"]
    assert isinstance(bound, IntegerAttr)
    assert isinstance(size, IntegerAttr)
    return MemoryPlan(bound=bound.value.data, plan=size.value.data)


@dataclass
class _Emitter:
    module: ModuleOp
    writer: ProgramWriter = field(init=False)
    weights: dict[tuple[object, ...], PackedWeight] = field(
        default_factory=dict[tuple[object, ...], PackedWeight]
    )
    weight_bytes: int = 0
    _weight_tensors: dict[tuple[object, ...], int] = field(
        default_factory=dict[tuple[object, ...], int]
    )
    _caches: dict[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        self.bounds = pipeline_of(self.module).bound_of
        self.writer = ProgramWriter(Bounds(self.bounds))
        self.names = {c.graph.data: c for c in pipeline_of(self.module).caches}
        for name, cache in _caches(self.module).items():
            self._caches[name] = self.writer.cache(cache)

    def entry(self, graph: FuncOp) -> Entry:
        """Writes one entry."""
        ids: dict[SSAValue, int] = {}
        inputs = [
            self._port(value, name, _slot(graph, "arg_attrs", i))
            for i, (value, name) in enumerate(
                zip(block_of(graph).args, argument_names(graph), strict=True)
            )
        ]
        ids.update(zip(block_of(graph).args, inputs, strict=True))
        returned = return_of(graph).operands
        outputs = [
            self._port(value, name, _slot(graph, "res_attrs", i))
            for i, (value, name) in enumerate(zip(returned, result_names(graph), strict=True))
        ]
        ids.update(zip(returned, outputs, strict=True))
        first, counts = self.writer.stages, dict[str, int]()
        topology = hashlib.sha256()
        for op in stages_of(graph):
            operands = [None if v is None else self._tensor(v, ids) for v in op.arguments()]
            results = [self._tensor(v, ids) for v in op.results]
            self.writer.stage(op.kernel(), operands, results, op.params(), location_of(op))
            counts[op.kernel()] = counts.get(op.kernel(), 0) + 1
            topology.update(f"{op.kernel()} {operands} {results} {op.params()}\n".encode())
        name, role = graph.sym_name.data, role_of(graph)
        self.writer.entry(
            name=name,
            role=role,
            first_stage=first,
            inputs=inputs,
            outputs=outputs,
            cache=self._cache(graph),
        )
        return Entry(
            name=name,
            role=role,
            inputs=_ports(block_of(graph).args, argument_names(graph)),
            outputs=_ports(returned, result_names(graph)),
            cache=self._cache_names(graph),
            stages=counts,
            topology=topology.hexdigest(),
        )

    def _port(self, value: SSAValue, name: str, slot: cpu.SlotAttr | None) -> int:
        return self.writer.tensor(
            name=name,
            dtype=str(element_of(value)),
            dims=shape_of(value),
            storage=program.IO,
            offset=program.NO_SLOT if slot is None else slot.offset.data,
            max_bytes=nbytes(value, self.bounds),
        )

    def _tensor(self, value: SSAValue, ids: dict[SSAValue, int]) -> int:
        if value not in ids:
            source = root(value).owner
            if isinstance(source, cpu.WeightOp | cpu.ConstantOp):
                ids[value] = self._weight(value, source)
            else:
                ids[value] = self._arena(value, root(value))
        return ids[value]

    def _arena(self, value: SSAValue, source: SSAValue) -> int:
        assert isinstance(source.owner, Operation)
        slot = source.owner.attributes[SLOT]
        assert isinstance(slot, cpu.SlotAttr)
        return self.writer.tensor(
            name="",
            dtype=str(element_of(value)),
            dims=shape_of(value),
            storage=program.ARENA,
            offset=slot.offset.data,
            max_bytes=nbytes(value, self.bounds),
        )

    def _weight(self, value: SSAValue, source: cpu.WeightOp | cpu.ConstantOp) -> int:
        weight, name = self._blob(source)
        key = (weight.digest, weight.layout, name, shape_of(value))
        if key not in self._weight_tensors:
            self._weight_tensors[key] = self.writer.tensor(
                name=name,
                dtype=weight.dtype,
                dims=shape_of(value),
                storage=program.WEIGHT,
                offset=weight.offset,
                max_bytes=nbytes(value, self.bounds),
            )
        return self._weight_tensors[key]

    def _blob(self, source: cpu.WeightOp | cpu.ConstantOp) -> tuple[PackedWeight, str]:
        layout, inline = source.layout.data, None
        if isinstance(source, cpu.WeightOp):
            digest, shape = source.value.digest.data, source.value.dims
            name, dtype = source.weight_name.data, str(source.value.element)
        else:
            inline = source.value.data.data
            digest, shape = f"sha256:{hashlib.sha256(inline).hexdigest()}", source.value.get_shape()
            name, dtype = f"constant.{digest[7:19]}", str(source.value.get_element_type())
        key = (digest, layout, *(() if layout == PLAIN else shape))
        if key not in self.weights:
            offset = -(-self.weight_bytes // ALIGNMENT) * ALIGNMENT
            made = PackedWeight(
                name=name,
                digest=digest,
                dtype=dtype,
                shape=tuple(shape),
                layout=layout,
                offset=offset,
                inline=inline,
            )
            self.weights[key] = made
            self.weight_bytes = offset + made.nbytes
        return self.weights[key], name

    def _cache(self, graph: FuncOp) -> int | None:
        cache = cache_of(graph)
        return None if cache is None else self._caches[cache.cache.data]

    def _cache_names(self, graph: FuncOp) -> CacheNames | None:
        cache = cache_of(graph)
        if cache is None:
            return None
        names = self.names[graph.sym_name.data]
        return CacheNames(
            cache=cache.cache.data,
            layers=cache.layers.data,
            kv_heads=cache.kv_heads.data,
            head_dim=cache.head_dim.data,
            max_tokens=cache.max_tokens.data,
            past_symbol=cache.past_symbol.data,
            key=names.key.data,
            value=names.value.data,
            out=names.out.data,
        )


class Bounds(dict[str, int]):
    """Bounds of symbols; an unlisted one has the default."""

    def __missing__(self, symbol: str) -> int:
        """The default bound."""
        return symbol_bound(symbol, {})


def cache_of(graph: FuncOp) -> cpu.CacheAttr | None:
    """The cache that a lowered graph appends to."""
    cache = graph.attributes.get("cpu.cache")
    return cache if isinstance(cache, cpu.CacheAttr) else None


def _caches(module: ModuleOp) -> dict[str, Cache]:
    """The caches by name; a first step names no symbol, the steps behind it do."""
    caches: dict[str, Cache] = {}
    for graph in graphs(module):
        attr = cache_of(graph)
        if attr is None:
            continue
        made = Cache(
            name=attr.cache.data,
            layers=attr.layers.data,
            kv_heads=attr.kv_heads.data,
            head_dim=attr.head_dim.data,
            max_tokens=attr.max_tokens.data,
            past_symbol=attr.past_symbol.data or None,
        )
        known = caches.setdefault(made.name, made)
        caches[made.name] = replace(known, past_symbol=known.past_symbol or made.past_symbol)
    return caches


def _slot(graph: FuncOp, side: str, index: int) -> cpu.SlotAttr | None:
    attrs = graph.arg_attrs if side == "arg_attrs" else graph.res_attrs
    slot = None if attrs is None else attrs.data[index].data.get(IO_SLOT)
    return slot if isinstance(slot, cpu.SlotAttr) else None


def _ports(values: Sequence[SSAValue], names: Sequence[str]) -> tuple[Port, ...]:
    return tuple(
        Port(name=n, dtype=str(element_of(v)), shape=tuple(str(d) for d in shape_of(v)))
        for v, n in zip(values, names, strict=True)
    )
