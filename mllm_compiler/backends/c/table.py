"""The stage table as values: what `emit` writes as bytes and `emit_c` as C."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from mllm_compiler.backends.c import program
from mllm_compiler.backends.c.artifact import MemoryPlan
from mllm_compiler.backends.c.program import Cache
from mllm_compiler.dialects import cpu
from mllm_compiler.dialects.cpu.base import Param
from mllm_compiler.dialects.cpu.weights import PLAIN
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.types import element_of, shape_of
from mllm_compiler.passes.graphs import (
    argument_names,
    block_of,
    entry_order,
    fallback_of,
    graphs,
    location_of,
    pipeline_of,
    result_names,
    return_of,
    role_of,
    symbol_bound,
)
from mllm_compiler.passes.most_bytes import nbytes
from mllm_compiler.passes.named_banks import PLAN, parts_of
from mllm_compiler.passes.pack_weights import ALIGNMENT, PackedWeight
from mllm_compiler.passes.plan_memory import (
    Planner,
    port_slot,
    root,
    slot_name,
    stages_of,
)


@dataclass(frozen=True)
class Tensor:
    """An operand of a stage: where it lies and what shape it has.

    `owner` tells the inputs and outputs of entries apart; it is empty in the arena and for weights.
    """

    name: str
    dtype: str
    dims: tuple[Dim, ...]
    storage: int
    offset: int
    max_bytes: int
    owner: str = ""


@dataclass(frozen=True)
class Stored:
    """How the pages of a cache hold a layer: bits, and the scales of keys that codes need."""

    bits: int
    k_scale: Tensor | None


@dataclass(frozen=True)
class Stage:
    """A call of a kernel; `fallback`: the device of the graph refuses what it does."""

    kernel: str
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]
    params: tuple[Param, ...]
    location: str
    fallback: bool = False


@dataclass(frozen=True)
class EntryTable:
    """A graph as the stages that it runs."""

    graph: FuncOp
    name: str
    role: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    stages: tuple[Stage, ...]
    cache: str | None


@dataclass(frozen=True)
class Table:
    """A whole program."""

    entries: tuple[EntryTable, ...]
    caches: Mapping[str, Cache]
    key_scales: Mapping[str, tuple[Tensor | None, ...]]
    weights: tuple[PackedWeight, ...]
    weight_bytes: int
    bounds: Mapping[str, int]
    least: Mapping[str, int]
    plan: MemoryPlan


def table_of(module: ModuleOp) -> Table:
    """The table of a lowered and planned module."""
    maker = _Maker(module)
    entries = tuple(maker.entry(graph) for graph in entry_order(module))
    return Table(
        entries=entries,
        caches=_caches(module, maker.stored),
        key_scales={name: _scales(layers) for name, layers in maker.stored.items()},
        weights=tuple(maker.weights.values()),
        weight_bytes=maker.weight_bytes,
        bounds=Bounds(maker.bounds),
        least=pipeline_of(module).least_of,
        plan=memory_plan(module),
    )


class Bounds(dict[str, int]):
    """Bounds of symbols; an unlisted one has the default."""

    def __missing__(self, symbol: str) -> int:
        """The default bound."""
        return symbol_bound(symbol, {})


def memory_plan(module: ModuleOp) -> MemoryPlan:
    """What `plan-memory` left in the module."""
    plan = module.attributes.get(PLAN)
    assert isinstance(plan, DictionaryAttr), "plan-memory has not run"
    bound, size = plan.data["bound"], plan.data["plan"]
    assert isinstance(bound, IntegerAttr)
    assert isinstance(size, IntegerAttr)
    planner = Planner(module)
    return MemoryPlan(
        bound=bound.value.data,
        plan=size.value.data,
        buffers=tuple(planner.intervals()),
        offsets=tuple(planner.offsets()),
        spans=planner.spans,
        sides=planner.sides,
        banks=parts_of(module),
    )


def cache_of(graph: FuncOp) -> cpu.CacheAttr | None:
    """The cache that a lowered graph appends to."""
    cache = graph.attributes.get("cpu.cache")
    return cache if isinstance(cache, cpu.CacheAttr) else None


@dataclass
class _Maker:
    module: ModuleOp
    weights: dict[tuple[object, ...], PackedWeight] = field(
        default_factory=dict[tuple[object, ...], PackedWeight]
    )
    weight_bytes: int = 0
    stored: dict[str, dict[int, Stored]] = field(default_factory=dict[str, dict[int, Stored]])

    def __post_init__(self) -> None:
        self.bounds = pipeline_of(self.module).bound_of

    def entry(self, graph: FuncOp) -> EntryTable:
        """One entry."""
        name = graph.sym_name.data
        arguments = zip(block_of(graph).args, argument_names(graph), strict=True)
        inputs = [
            self._port(value, label, f"{name} input", port_slot(graph, "arg_attrs", i))
            for i, (value, label) in enumerate(arguments)
        ]
        returned = return_of(graph).operands
        outputs = [
            self._port(value, label, f"{name} output", port_slot(graph, "res_attrs", i))
            for i, (value, label) in enumerate(zip(returned, result_names(graph), strict=True))
        ]
        tensors = dict(zip(block_of(graph).args, inputs, strict=True))
        tensors |= dict(zip(returned, outputs, strict=True))
        cache, refused = cache_of(graph), fallback_of(graph)
        for op in block_of(graph).ops:
            if cache is not None and isinstance(op, cpu.F32KvStoreOp) and op.bits is not None:
                scale = None if op.k_scale is None else self._tensor(op.k_scale, tensors)
                layers = self.stored.setdefault(cache.cache.data, {})
                layers[op.layer.value.data] = Stored(op.bits.value.data, scale)
        return EntryTable(
            graph=graph,
            name=name,
            role=role_of(graph),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            stages=tuple(self._stage(op, tensors, refused) for op in stages_of(graph)),
            cache=None if cache is None else cache.cache.data,
        )

    def _stage(
        self, op: cpu.CpuOp, tensors: dict[SSAValue, Tensor], refused: Collection[str]
    ) -> Stage:
        return Stage(
            kernel=op.kernel(),
            inputs=tuple(None if v is None else self._tensor(v, tensors) for v in op.arguments()),
            outputs=tuple(self._tensor(v, tensors) for v in op.results),
            params=tuple(op.params()),
            location=location_of(op),
            fallback=location_of(op) in refused,
        )

    def _port(self, value: SSAValue, name: str, owner: str, slot: cpu.SlotAttr | None) -> Tensor:
        offset = program.NO_SLOT if slot is None else slot.offset.data
        return self._made(value, name, program.IO, offset, owner)

    def _made(
        self, value: SSAValue, name: str, storage: int, offset: int, owner: str = ""
    ) -> Tensor:
        size = nbytes(value, self.bounds)
        dtype, dims = str(element_of(value)), shape_of(value)
        return Tensor(name, dtype, dims, storage, offset, size, owner)

    def _tensor(self, value: SSAValue, tensors: dict[SSAValue, Tensor]) -> Tensor:
        if value not in tensors:
            source = root(value).owner
            assert isinstance(source, Operation)
            if isinstance(source, cpu.WeightOp | cpu.ConstantOp):
                weight, name = self._weight(source)
                tensors[value] = self._made(value, name, program.WEIGHT, weight.offset)
            else:
                slot = source.attributes[slot_name(root(value))]
                assert isinstance(slot, cpu.SlotAttr)
                tensors[value] = self._made(value, "", program.ARENA, slot.offset.data)
        return tensors[value]

    def _weight(self, source: cpu.WeightOp | cpu.ConstantOp) -> tuple[PackedWeight, str]:
        """The packed weight of an op; equal bytes in one layout are one."""
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


def _caches(module: ModuleOp, stored: Mapping[str, Mapping[int, Stored]]) -> dict[str, Cache]:
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
            bits=tuple(layer.bits for _, layer in sorted(stored.get(attr.cache.data, {}).items())),
        )
        known = caches.setdefault(made.name, made)
        caches[made.name] = replace(
            known,
            max_tokens=made.max_tokens if made.past_symbol else known.max_tokens,
            past_symbol=known.past_symbol or made.past_symbol,
        )
    return caches


def _scales(layers: Mapping[int, Stored]) -> tuple[Tensor | None, ...]:
    return tuple(layer.k_scale for _, layer in sorted(layers.items()))
