"""The graphs of a module: functions whose arguments and results carry the model's names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from mllm_compiler.dialects.dims import Dim, DimsAttr
from mllm_compiler.dialects.hal import PlaceAttr, PlanAttr
from mllm_compiler.dialects.locations import location_name
from mllm_compiler.dialects.mllm import PipelineOp, VariantAttr, default_bound

NAME: Final = "mllm.name"
ROLE: Final = "mllm.role"
SOURCE: Final = "mllm.source"
VARIANT: Final = "mllm.variant"
"""The attribute of a graph that was padded: what it serves, and its sizes."""
TARGET: Final = "hal.target"
"""The attribute of a function that another device runs: its target."""
FALLBACK: Final = "hal.fallback"
"""The attribute of a graph: the nodes that its device does not run, with the reason of each."""
DEVICE_PLAN: Final = "hal.plan"
"""The attribute of a graph that is divided between a device and the host: the calls, and costs."""
DIMS: Final = "mllm.dims"
"""The attribute of an argument or result of such a graph: its dims without padding."""


def graphs(module: ModuleOp) -> list[FuncOp]:
    """The graphs in the order of the module; functions of other devices are none."""
    return [f for f in functions(module) if TARGET not in f.attributes]


def functions(module: ModuleOp) -> list[FuncOp]:
    """The graphs, and the functions of other devices that they call."""
    return [op for op in module.body.block.ops if isinstance(op, FuncOp)]


def device_functions(module: ModuleOp, target: str) -> list[FuncOp]:
    """The functions that a device runs for the graphs of a module."""
    return [f for f in functions(module) if f.attributes.get(TARGET) == StringAttr(target)]


def devices_in(module: ModuleOp) -> list[str]:
    """The devices that graphs of a module call."""
    found = (function.attributes.get(TARGET) for function in functions(module))
    return sorted({target.data for target in found if isinstance(target, StringAttr)})


def functions_of(module: ModuleOp, target: str) -> list[FuncOp]:
    """What a target runs: its functions; or the graphs, where none is placed elsewhere."""
    own = graphs(module)
    places = [op.attributes.get("place") for graph in own for op in block_of(graph).ops]
    targets = {place.target.data for place in places if isinstance(place, PlaceAttr)}
    return device_functions(module, target) or (own if targets <= {target} else [])


def callees(graph: FuncOp) -> list[str]:
    """The functions that a graph calls on other devices."""
    called = [op.properties.get("callee") for op in block_of(graph).ops]
    return [c.string_value() for c in called if isinstance(c, SymbolRefAttr)]


def pipeline_of(module: ModuleOp) -> PipelineOp:
    """The module's pipeline; a module without one gets an empty one."""
    for op in module.body.block.ops:
        if isinstance(op, PipelineOp):
            return op
    made = PipelineOp("pipeline")
    module.body.block.add_op(made)
    return made


def symbol_bound(symbol: str, bounds: dict[str, int]) -> int:
    """The largest value of a symbol; unlisted, 1 for a batch and 2048 for anything else."""
    return bounds[symbol] if symbol in bounds else default_bound(symbol)


def role_of(graph: FuncOp) -> str:
    """The role that the model gives a graph."""
    role = graph.attributes.get(ROLE)
    return role.data if isinstance(role, StringAttr) else "graph"


def fallback_of(graph: FuncOp) -> dict[str, str]:
    """Why a graph's device does not run some of its nodes, by node."""
    noted = graph.attributes.get(FALLBACK)
    if not isinstance(noted, DictionaryAttr):
        return {}
    return {node: why.data for node, why in noted.data.items() if isinstance(why, StringAttr)}


def plan_of(graph: FuncOp) -> dict[str, int]:
    """How a graph is divided between its device and the host; empty where it is not."""
    plan = graph.attributes.get(DEVICE_PLAN)
    return plan.facts if isinstance(plan, PlanAttr) else {}


def origin_of(graph: FuncOp) -> str:
    """The name of the graph in the model's files that a graph was made from, or its own."""
    source = graph.attributes.get(SOURCE)
    return source.data if isinstance(source, StringAttr) else source_name(graph)


def source_name(graph: FuncOp) -> str:
    """The name of the graph in the model's files; of a padded graph that of what it serves."""
    variant = graph.attributes.get(VARIANT)
    return variant.entry.data if isinstance(variant, VariantAttr) else graph.sym_name.data


def block_of(graph: FuncOp) -> Block:
    """The one block of a graph."""
    return graph.body.block


def return_of(graph: FuncOp) -> ReturnOp:
    """The return of a graph."""
    last = block_of(graph).last_op
    assert isinstance(last, ReturnOp)
    return last


def argument_names(graph: FuncOp) -> list[str]:
    """The names of the arguments."""
    return _names(graph.arg_attrs, len(block_of(graph).args), "arg")


def result_names(graph: FuncOp) -> list[str]:
    """The names of the results."""
    return _names(graph.res_attrs, len(return_of(graph).operands), "result")


def real_dims(ports: ArrayAttr[DictionaryAttr] | None) -> dict[str, tuple[Dim, ...]]:
    """The dims of a padded graph's arguments or results before they were padded, by name."""
    found: dict[str, tuple[Dim, ...]] = {}
    for port in ports or ():
        name, dims = port.data.get(NAME), port.data.get(DIMS)
        if isinstance(name, StringAttr) and isinstance(dims, DimsAttr):
            found[name.data] = dims.data
    return found


def argument(graph: FuncOp, name: str) -> SSAValue | None:
    """The argument of a name."""
    names = argument_names(graph)
    return block_of(graph).args[names.index(name)] if name in names else None


def _names(attrs: ArrayAttr[DictionaryAttr] | None, count: int, word: str) -> list[str]:
    if attrs is None:
        return [f"{word}{i}" for i in range(count)]
    names = [d.data.get(NAME) for d in attrs]
    return [n.data if isinstance(n, StringAttr) else f"{word}{i}" for i, n in enumerate(names)]


def named(names: Iterable[str]) -> ArrayAttr[DictionaryAttr]:
    """The attributes that give arguments or results their names."""
    return ArrayAttr(DictionaryAttr({NAME: StringAttr(n)}) for n in names)


def erase_arguments(graph: FuncOp, names: Collection[str]) -> None:
    """Removes arguments that nothing uses any more."""
    kept, block = argument_names(graph), block_of(graph)
    for name in [n for n in kept if n in names]:
        block.erase_arg(block.args[kept.index(name)])
        kept.remove(name)
    graph.properties["arg_attrs"] = named(kept)
    graph.update_function_type()


def erase_results(graph: FuncOp, names: Collection[str]) -> None:
    """Removes results."""
    before = result_names(graph)
    kept = [(n, v) for n, v in zip(before, return_of(graph).operands, strict=True)]
    kept = [(n, v) for n, v in kept if n not in names]
    return_of(graph).operands = [v for _, v in kept]
    graph.properties["res_attrs"] = named(n for n, _ in kept)
    graph.update_function_type()


def add_argument(graph: FuncOp, name: str, kind: Attribute) -> SSAValue:
    """A new argument of a graph, behind those that it has."""
    block, names = block_of(graph), graph.arg_attrs or named(argument_names(graph))
    made = block.insert_arg(kind, len(block.args))
    graph.properties["arg_attrs"] = ArrayAttr([*names, *named([name])])
    graph.update_function_type()
    return made


def add_results(graph: FuncOp, values: Mapping[str, SSAValue]) -> None:
    """Returns values of a graph under names, behind the results that it has."""
    end = return_of(graph)
    names = graph.res_attrs or named(result_names(graph))
    graph.properties["res_attrs"] = ArrayAttr([*names, *named(values)])
    end.operands = [*end.operands, *values.values()]
    graph.update_function_type()


def set_attribute(graph: FuncOp, side: str, index: int, name: str, value: Attribute) -> None:
    """Sets one attribute of an argument (`arg_attrs`) or result (`res_attrs`)."""
    attrs = graph.arg_attrs if side == "arg_attrs" else graph.res_attrs
    assert attrs is not None
    entries = [dict(d.data) for d in attrs]
    entries[index][name] = value
    graph.properties[side] = ArrayAttr(DictionaryAttr(e) for e in entries)


CloneT = TypeVar("CloneT", bound=Operation)


def located_clone(op: CloneT, values: Mapping[SSAValue, SSAValue] | None = None) -> CloneT:
    """A copy of an op and of all in it that keeps the locations.

    Args:
        op: The op.
        values: What takes the place of its operands.
    """
    made = op.clone(dict(values or {}))
    for before, after in zip(op.walk(), made.walk(), strict=True):
        after.location = before.location
    return made


def remove_dead(graph: FuncOp) -> None:
    """Erases ops whose results nothing uses; ops without results have an effect and stay."""
    for op in reversed(list(block_of(graph).ops)):
        if op.results and all(r.first_use is None for r in op.results):
            op.detach()
            op.erase()


def location_of(op: Operation) -> str:
    """The ONNX node that an op was made from; without one, the op's own name."""
    return location_name(op) or op.name


def last_ops(graph: FuncOp) -> dict[str, Operation]:
    """The last op that was made from each node; an op in a region runs many times, so is none.

    A weight has no node.
    """
    ops = [op for op in block_of(graph).ops if op.operands and op.results and location_name(op)]
    return {location_name(op): op for op in ops}


def users(value: SSAValue) -> Iterator[Operation]:
    """The ops that use a value, once for each use."""
    return (use.operation for use in value.uses)


def brought_before(value: SSAValue, op: Operation) -> bool:
    """Moves what makes a value before an op of its block; whether that could be done."""
    owner = value.owner
    if not isinstance(owner, Operation) or owner.parent is not op.parent:
        return True
    if owner is op:
        return False
    if owner.is_before_in_block(op):
        return True
    if not all(brought_before(operand, op) for operand in owner.operands):
        return False
    owner.detach()
    block = op.parent_block()
    assert block is not None
    block.insert_op_before(owner, op)
    return True


def entry_order(module: ModuleOp) -> list[FuncOp]:
    """The graphs so that each stands behind those whose outputs it reads; else as in the module."""
    by_name = {g.sym_name.data: g for g in graphs(module)}
    order: dict[str, FuncOp] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in order or name in path or name not in by_name:
            return
        for edge in pipeline_of(module).edges:
            if edge.consumer.data == name:
                visit(edge.producer.data, (*path, name))
        order[name] = by_name[name]

    for name in by_name:
        visit(name, ())
    return list(order.values())
