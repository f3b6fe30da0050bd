"""`outline-devices`: what another device runs of a graph becomes functions of that device; exact.

    func.func @vision(%pixels)
      %a = mllm.patch_embed %pixels, .. {place = #hal.place<"tflite", "CONV_2D">}
      %b = mllm.resize %a {place = #hal.place<"c", "f32_resize">}
      %c = mllm.unary gelu %b {place = #hal.place<"tflite", "an operator of its name">}
->
    func.func @vision(%pixels)
      %a = func.call @vision_tflite(%pixels)
      %b = mllm.resize %a {place = #hal.place<"c", "f32_resize">}
      %c = func.call @vision_tflite_1(%b)
    func.func @vision_tflite(%arg0) attributes {hal.target = "tflite"} ..
    func.func @vision_tflite_1(%arg0) attributes {hal.target = "tflite"} ..

Ops of one device that can run in one call are in one function: those of a phase (`device_calls`),
so that every call has what it needs before it starts. Weights and constants stand where they are
read. The graph keeps its name, inputs, results and edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from mllm_compiler.dialects.hal import PlaceAttr
from mllm_compiler.dialects.locations import named
from mllm_compiler.dialects.mllm import ConstantOp, WeightOp
from mllm_compiler.passes.device_calls import phases
from mllm_compiler.passes.graphs import (
    TARGET,
    block_of,
    functions,
    graphs,
    located_clone,
    remove_dead,
    return_of,
    users,
)


@dataclass(frozen=True)
class OutlineDevices(ModulePass):
    """Makes functions of the ops that are placed on another target than the program's.

    Attributes:
        target: Runs the graphs, and calls the functions.
    """

    name = "outline-devices"
    target: str = "c"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Goes through the graphs; functions stand behind the graph that calls them."""
        taken = {function.sym_name.data for function in functions(op)}
        for graph in graphs(op):
            last, runs = graph, _runs(graph, self.target)
            for (device, _), ops in runs.items():
                stem = f"{graph.sym_name.data}_{device}"
                names = (f"{stem}_{i}" if i else stem for i in count())
                name = next(n for n in names if n not in taken)
                taken.add(name)
                made = _outlined(graph, ops, name, device)
                op.body.block.insert_op_after(made, last)
                last = made
            remove_dead(graph)


def _runs(graph: FuncOp, host: str) -> dict[tuple[str, int], list[Operation]]:
    """The ops of each call, by device and phase; the graph's ops are put in order of phases."""
    device = {op: _device_of(op, host) for op in _computing(graph)}
    sides = [host, *sorted(set(device.values()) - {host})]
    phase = phases(device, _makers, lambda op: sides.index(device[op]), len(sides))
    runs = dict[tuple[str, int], list[Operation]]()
    for op, at in phase.items():
        if device[op] != host and not isinstance(op, ReturnOp):
            runs.setdefault((device[op], at), []).append(op)
    if runs:
        _order(graph, phase)
    return dict(sorted(runs.items(), key=lambda run: run[0][1]))


def _computing(graph: FuncOp) -> list[Operation]:
    return [op for op in block_of(graph).ops if not isinstance(op, WeightOp | ConstantOp)]


def _device_of(op: Operation, host: str) -> str:
    place = op.attributes.get("place")
    return place.target.data if isinstance(place, PlaceAttr) else host


def _makers(op: Operation) -> list[Operation]:
    return [value.owner for value in op.operands if isinstance(value.owner, Operation)]


def _order(graph: FuncOp, phase: dict[Operation, int]) -> None:
    """Puts ops behind all of earlier phases; what is read by many, weights, stands first."""
    block, end = block_of(graph), return_of(graph)
    for op in sorted(block.ops, key=lambda op: phase.get(op, -1)):
        if op is not end:
            op.detach()
            block.insert_op_before(op, end)


def _outlined(graph: FuncOp, ops: Sequence[Operation], name: str, device: str) -> FuncOp:
    """Takes ops out of a graph; the function that a call in their place runs."""
    inside = set(ops)
    read = dict.fromkeys(v for op in ops for v in op.operands if v.owner not in inside)
    data = [v for v in read if isinstance(v.owner, WeightOp | ConstantOp)]
    inputs = [v for v in read if v not in data]
    results = [r for op in ops for r in op.results if any(u not in inside for u in users(r))]
    made = FuncOp(name, ([v.type for v in inputs], [r.type for r in results]))
    made.attributes[TARGET] = StringAttr(device)
    values = dict[SSAValue, SSAValue](zip(inputs, block_of(made).args, strict=True))
    for op in (*(v.owner for v in data), *ops):
        assert isinstance(op, Operation)
        copy = located_clone(op, values)
        block_of(made).add_op(copy)
        values |= zip(op.results, copy.results, strict=True)
    block_of(made).add_op(ReturnOp(*(values[r] for r in results)))
    call = CallOp(name, inputs, [r.type for r in results])
    call.location = named(name)
    block_of(graph).insert_op_after(call, ops[-1])
    for before, after in zip(results, call.results, strict=True):
        before.replace_uses_with_if(after, lambda use: use.operation not in inside)
    for op in reversed(ops):
        op.detach()
        op.erase()
    return made
