"""`plan-memory`: every tensor that lives while a model runs gets its place in one arena; exact.

    %a = cpu.f32_linear %x, %w, none {..}
->
    %a = cpu.f32_linear %x, %w, none {.., slot = #cpu.slot<4096, 1179648>}

All entries are one problem: they run one after another in the order of the pipeline, but for those
that its `overlaps` let run at the same time. A tensor that one hands to another lives from its
producer to the end of its last reader, and both name the same slot. Sizes are those at the symbols'
bounds. An alias shares its operand's bytes, and an elementwise op or a norm writes over an operand
that dies there. A join whose operands can be written where it has them is no stage (`joined.py`),
where that makes the plan no larger. So the product of a projector whose norm makes a shared tensor
is written into that tensor, and normed in place. Tensors that the caller binds have a slot only
where a default place is of use: shared ones, and results up to 16 MiB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from xdsl.context import Context
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, OpResult, SSAValue
from xdsl.passes import ModulePass

from mllm_compiler.dialects import cpu
from mllm_compiler.dialects.cpu.elementwise import ElementwiseOp
from mllm_compiler.errors import CompileError
from mllm_compiler.passes import arena
from mllm_compiler.passes.banks import OverfullError, check_banks, plan_banks
from mllm_compiler.passes.graphs import (
    argument_names,
    block_of,
    entry_order,
    graphs,
    location_of,
    origin_of,
    pipeline_of,
    result_names,
    return_of,
    role_of,
    set_attribute,
    users,
)
from mllm_compiler.passes.intervals import Overlap
from mllm_compiler.passes.joined import candidates, is_placed, joint_of, place
from mllm_compiler.passes.most_bytes import nbytes
from mllm_compiler.passes.named_banks import BANKS, PLAN, banks_of, parts_attribute, refusal

SLOT: Final = "slot"
IO_SLOT: Final = "cpu.slot"
LARGEST_RESULT: Final = 16 << 20
"""Bytes up to which a result that no other graph reads has a default place in the arena."""

LANGUAGE: Final = ("language-model", "prefill", "decode")
"""Roles of the graphs of a language model."""

IN_PLACE: Final = (ElementwiseOp, cpu.F32LayerNormOp, cpu.F32RmsNormOp)
"""Ops whose kernels read an element, or a row of the first operand, before they write it."""

Port = tuple[str, str]
"""A graph and the name of one of its arguments or results."""


@dataclass
class Buffer:
    """Bytes that one value, and all that alias it or were written over it, live in.

    `graphs` are those that touch it: the one that writes it, then those that it is handed to.
    `parts` are values that lie in it, at so many bytes from its start. `device` says that a device
    reads or writes it itself.
    """

    name: str
    size: int
    first: int
    last: int
    graphs: list[str]
    values: list[SSAValue] = field(default_factory=list[SSAValue])
    parts: list[tuple[SSAValue, int]] = field(default_factory=list[tuple[SSAValue, int]])
    device: bool = False


@dataclass(frozen=True)
class PlanMemory(ModulePass):
    """Gives every tensor of a lowered module its place in the arena.

    Without options, the arena consists of the banks that the pipeline names. With one, it is one
    bank:

    Attributes:
        capacity: The bytes that there are for it; none: as many as it needs.
        alignment: Of buffers from `large` bytes on; memory that a device maps in pieces, as of
            262144 bytes, has each such buffer in pieces of its own.
        large: Bytes from which a buffer has this alignment.
    """

    name = "plan-memory"

    capacity: int | None = None
    alignment: int = arena.ALIGNMENT
    large: int = arena.LARGE

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Plans, checks the plan and writes it into the module.

        Raises:
            CompileError: MLC-R003, a size is known only when the model runs; MLC-R009, the plan is
                larger than the memory that there is for it, or no bank takes a tensor.
        """
        if self.alignment <= 0 or self.alignment % arena.ALIGNMENT:
            message = f"an alignment of {self.alignment} is no multiple of {arena.ALIGNMENT}"
            remedy = "such as plan-memory{alignment=262144}"
            raise CompileError("MLC-U007", message, location=self.name, remedy=remedy)
        bank = arena.Bank(self.capacity, self.alignment, self.large)
        plan_module(op, [bank] if bank != arena.PLAIN else banks_of(op))


def plan_module(module: ModuleOp, banks: Sequence[arena.Bank] = (arena.PLAIN,)) -> arena.Arena:
    """Plans a lowered module and writes slots, size, bound and parts of banks into it."""
    planner, plan = _best(module, banks)
    check_banks(planner.intervals(), plan, planner.overlaps)
    for buffer, offset in zip(planner.buffers, plan.offsets, strict=True):
        planner.annotate(buffer, offset)
    facts: dict[str, Attribute] = {
        "bound": IntegerAttr(plan.bound, i64),
        "order": StringAttr(plan.order),
        "plan": IntegerAttr(plan.plan, i64),
    }
    if [*banks] != [arena.PLAIN]:
        facts |= {BANKS: parts_attribute(plan)}
    module.attributes[PLAN] = DictionaryAttr(facts)
    return plan


def _best(module: ModuleOp, banks: Sequence[arena.Bank]) -> tuple[Planner, arena.Arena]:
    """The smaller plan of two: joins that move nothing, or all joins as stages.

    Raises:
        CompileError: MLC-R009, neither keeps within the banks.
    """
    joins = candidates(module, pipeline_of(module).bound_of)
    made: list[tuple[bool, Planner, arena.Arena]] = []
    refused: OverfullError | None = None
    for placed in (True, False) if joins else (False,):
        place(joins, on=placed)
        planner = Planner(module)
        try:
            plan = plan_banks(planner.intervals(), banks, overlaps=planner.overlaps)
            made.append((placed, planner, plan))
        except OverfullError as overfull:
            refused = overfull
    if refused is not None and not made:
        raise refusal(refused)
    placed, planner, plan = min(made, key=lambda found: found[2].plan)
    place(joins, on=placed)
    return planner, plan


class Planner:
    """Collects the buffers of all entries on one axis of time, a tick a stage.

    Attributes:
        buffers: What needs a place.
        spans: The first and the last tick of each entry, by name; one's last is the next one's
            first.
        sides: The entries of each overlap, by the sides that may run at the same time.
    """

    def __init__(self, module: ModuleOp) -> None:
        self.bounds = pipeline_of(module).bound_of
        self.buffers: list[Buffer] = []
        self.spans: dict[str, tuple[int, int]] = {}
        self._ports: dict[Port, Buffer] = {}
        self._sources: dict[Port, Port] = {
            (e.consumer.data, e.input.data): (e.producer.data, e.output.data)
            for e in pipeline_of(module).edges
        }
        self._inputs: list[tuple[FuncOp, int, Buffer]] = []
        self._outputs: dict[int, list[tuple[FuncOp, int]]] = {}
        self._time = 0
        for graph in entry_order(module):
            self._enter(graph)
        self.sides = _sides(module)

    @property
    def overlaps(self) -> list[Overlap]:
        """The sides by the times of their stages."""
        ticks = {name: (first, max(first, end - 1)) for name, (first, end) in self.spans.items()}
        return [tuple(tuple(ticks[n] for n in side) for side in sides) for sides in self.sides]

    def intervals(self) -> list[arena.Interval]:
        """The buffers as the arena wants them."""
        return [arena.Interval(b.name, b.first, b.last, b.size, b.device) for b in self.buffers]

    def offsets(self) -> list[int]:
        """Where a module that is planned says that the buffers lie."""
        return [self._slot(buffer).offset.data for buffer in self.buffers]

    def _slot(self, buffer: Buffer) -> cpu.SlotAttr:
        if buffer.values:
            value = buffer.values[0]
            slot = value.owner.attributes[slot_name(value)] if isinstance(value, OpResult) else None
        else:
            graph, index = self._outputs[id(buffer)][0]
            slot = port_slot(graph, "res_attrs", index)
        assert isinstance(slot, cpu.SlotAttr), "plan-memory has not run"
        return slot

    def annotate(self, buffer: Buffer, offset: int) -> None:
        """Writes the slot of a buffer onto the ops and ports that live in it."""
        slot = cpu.SlotAttr.of(offset, buffer.size)
        for value in buffer.values:
            assert isinstance(value.owner, cpu.CpuOp)
            value.owner.attributes[slot_name(value)] = slot
        for value, start in buffer.parts:
            assert isinstance(value.owner, cpu.CpuOp)
            part = cpu.SlotAttr.of(offset + start, nbytes(value, self.bounds))
            value.owner.attributes[slot_name(value)] = part
        for graph, index in self._outputs.get(id(buffer), ()):
            set_attribute(graph, "res_attrs", index, IO_SLOT, slot)
        for graph, index, shared in self._inputs:
            if shared is buffer:
                set_attribute(graph, "arg_attrs", index, IO_SLOT, slot)

    def _enter(self, graph: FuncOp) -> None:
        name, start = graph.sym_name.data, self._time
        stages = stages_of(graph)
        times = dict[Operation, int]((op, start + i) for i, op in enumerate(stages))
        end = self._time = start + len(stages)
        self.spans[name] = start, end
        for index, port in enumerate(argument_names(graph)):
            shared = self._ports.get(self._sources.get((name, port), ("", "")))
            if shared is not None:
                shared.last = max(shared.last, end)
                shared.graphs.append(name)
                shared.device |= _on_device(block_of(graph).args[index])
                self._inputs.append((graph, index, shared))
        returned = {v: i for i, v in enumerate(return_of(graph).operands)}
        ports, homes = result_names(graph), dict[SSAValue, Buffer]()
        for op in stages:
            for value in op.results:
                if joint := joint_of(value):
                    self._join(name, value, joint, times, homes)
                    continue
                home = self._reuse(op, value, homes, times[op])
                if value in returned:
                    size = nbytes(value, self.bounds)
                    at = Buffer(name, size, times[op], end, [name], device=_on_device(value))
                    self._result(graph, returned[value], ports[returned[value]], at, home)
                    continue
                last = max((times[u] for u in readers(value)), default=times[op])
                if home is None:
                    label = f"{name}: {location_of(op)}"
                    home = Buffer(label, nbytes(value, self.bounds), times[op], last, [name])
                    self.buffers.append(home)
                home.device |= _on_device(value)
                home.last = max(home.last, last)
                home.values.append(value)
                homes[value] = home

    def _join(
        self,
        graph: str,
        value: SSAValue,
        joint: tuple[cpu.ConcatOp, int],
        times: Mapping[Operation, int],
        homes: dict[SSAValue, Buffer],
    ) -> None:
        """Gives a value its place in what it is joined to, which lives from its first part on."""
        (join, start), maker = joint, value.owner
        whole = homes.get(join.y)
        if whole is None:
            assert isinstance(maker, Operation)
            last = max((times[u] for u in readers(join.y)), default=times[maker])
            label = f"{graph}: {location_of(join)}"
            size = nbytes(join.y, self.bounds)
            whole = homes[join.y] = Buffer(label, size, times[maker], last, [graph], [join.y])
            self.buffers.append(whole)
        whole.parts.append((value, start))
        whole.device |= _on_device(value) or _on_device(join.y)

    def _result(
        self, graph: FuncOp, index: int, name: str, made: Buffer, home: Buffer | None
    ) -> None:
        """Gives a result its place: that of the operand that it is written over, or `made`."""
        port = (graph.sym_name.data, name)
        if port not in self._sources.values() and made.size > LARGEST_RESULT:
            return
        buffer = made if home is None else home
        if home is None:
            self.buffers.append(buffer)
        buffer.name, buffer.last = f"{port[0]}: {port[1]}", made.last
        buffer.device |= made.device
        self._ports[port] = buffer
        self._outputs.setdefault(id(buffer), []).append((graph, index))

    def _reuse(
        self, op: cpu.CpuOp, value: SSAValue, homes: Mapping[SSAValue, Buffer], time: int
    ) -> Buffer | None:
        """The buffer of an operand that an op may write over."""
        if not isinstance(op, IN_PLACE):
            return None
        for operand in op.operands if isinstance(op, ElementwiseOp) else op.operands[:1]:
            home = homes.get(root(operand))
            others = [v for v in op.operands if v is not operand]
            if (
                home is not None
                and home.last == time
                and operand.type == value.type
                and all(homes.get(root(v)) is not home for v in others)
            ):
                return home
        return None


def _sides(module: ModuleOp) -> list[list[list[str]]]:
    """The overlaps of the pipeline, by the graphs that were made from those that it names.

    What looks up tokens for a language model runs with it.
    """
    origins = {g.sym_name.data: {origin_of(g)} for g in graphs(module)}
    models = {origin_of(g) for g in graphs(module) if role_of(g) in LANGUAGE}
    origins |= {g.sym_name.data: models for g in graphs(module) if role_of(g) == "embedding"}
    return [
        [[graph for graph, of in origins.items() if name in of] for name in names]
        for names in pipeline_of(module).together
    ]


def _on_device(value: SSAValue) -> bool:
    """Whether a device reads or writes a value itself."""
    return any(isinstance(op, cpu.DeviceCallOp) for op in (value.owner, *readers(value)))


def slot_name(value: SSAValue) -> str:
    """The attribute that holds the slot of an op's result; the first one's has no number."""
    index = value.index if isinstance(value, OpResult) else 0
    return f"{SLOT}{index or ''}"


def port_slot(graph: FuncOp, side: str, index: int) -> cpu.SlotAttr | None:
    """The place of an argument (`arg_attrs`) or result (`res_attrs`) that has one."""
    attrs = graph.arg_attrs if side == "arg_attrs" else graph.res_attrs
    slot = None if attrs is None else attrs.data[index].data.get(IO_SLOT)
    return slot if isinstance(slot, cpu.SlotAttr) else None


def stages_of(graph: FuncOp) -> list[cpu.CpuOp]:
    """The calls of kernels in a lowered graph."""
    ops = (op for op in block_of(graph).ops if isinstance(op, cpu.CpuOp))
    return [op for op in ops if not isinstance(op, cpu.AliasOp) and not is_placed(op)]


def root(value: SSAValue) -> SSAValue:
    """The value whose bytes an alias shares."""
    while isinstance(value.owner, cpu.AliasOp):
        value = value.owner.x
    return value


def readers(value: SSAValue) -> list[cpu.CpuOp]:
    """The stages that read a value, under its own name or an alias."""
    found: list[cpu.CpuOp] = []
    for op in users(value):
        if isinstance(op, cpu.AliasOp) or is_placed(op):
            found += readers(op.results[0])
        elif isinstance(op, cpu.CpuOp):
            found.append(op)
    return found
