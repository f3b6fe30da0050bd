"""Cuts a model at the borders of its blocks: each piece runs alone, on the reference's values.

    func.func @vision(%pixels)                      func.func @vision_0(%pixels) -> %a
      %a = mllm.patch_embed %pixels
      %b = mllm.layer_norm %a  loc("/layer.0/..")   func.func @vision_1(%v0) -> %c
      %c = mllm.linear %b      loc("/layer.0/..") ->
      %d = mllm.layer_norm %c  loc("/norm")         func.func @vision_2(%v0) -> %d

A block is what nodes of `layer.N` became; what is before the first and behind the last is a piece
each. A residual sum that is fused with the norm behind it ends the block whose result it is. What
depends on constants and whole numbers alone, weights and masks, is in every piece that reads it, so
that only reals cross a border. No vendor's op is known here: pieces are lowered, given codes and
emitted as a whole model is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from mllm_compiler.dialects.mllm import PipelineOp, ResidualNormOp
from mllm_compiler.dialects.types import element_of, is_float
from mllm_compiler.passes.graphs import (
    argument_names,
    block_of,
    graphs,
    located_clone,
    location_of,
    named,
    return_of,
    users,
)
from mllm_compiler.reference import run_function
from mllm_compiler.reference.executor import Array
from mllm_compiler.weights import WeightStore

BLOCK = re.compile(r".*\b(layers?|h|blocks\d*)\.\d+")
"""What the names of a block's nodes begin with: `/model/layers.0`, `/stages.1/layers.0`, `/h.0`."""

BEHIND = "behind"
"""The piece behind the last block."""

Inputs = Mapping[str, Mapping[str, Array]]


def block_name(op: Operation) -> str | None:
    """The block that an op belongs to, at every level of the compiler; None outside of blocks."""
    found = BLOCK.match(location_of(op))
    return None if found is None else found.group()


def cut(module: ModuleOp, store: WeightStore, inputs: Inputs) -> tuple[ModuleOp, Inputs]:
    """The pieces of all graphs, and what each takes where the graphs take `inputs`."""
    made = ModuleOp([])
    given: dict[str, Mapping[str, Array]] = {}
    for graph in graphs(module):
        values = values_of(module, graph, store, inputs[graph.sym_name.data])
        for at, ops in enumerate(pieces(graph)):
            name = f"{graph.sym_name.data}_{at}"
            piece, read = piece_of(graph, ops, name)
            made.body.block.add_op(piece)
            given[name] = dict(
                zip(argument_names(piece), map(values.__getitem__, read), strict=True)
            )
    made.body.block.add_op(PipelineOp("pipeline", edges=[], caches=[], bounds=[]))
    made.verify()
    return made, given


def values_of(
    module: ModuleOp, graph: FuncOp, store: WeightStore, inputs: Mapping[str, Array]
) -> dict[SSAValue, Array]:
    """Every value of a graph that the reference computes."""
    names = argument_names(graph)
    values: dict[SSAValue, Array] = {a: inputs[n] for n, a in zip(names, graph.args, strict=True)}

    def listen(op: Operation, results: Sequence[Array]) -> None:
        values.update(zip(op.results, results, strict=True))

    run_function(module, graph.sym_name.data, inputs, store, listener=listen)
    return values


def pieces(graph: FuncOp) -> Iterator[list[Operation]]:
    """The ops on reals of each piece; nodes of no block, between two, belong to the one before."""
    label, groups = "", dict[str, list[Operation]]()
    ops = [op for op in block_of(graph).ops if not isinstance(op, ReturnOp)]
    last = max((at for at, op in enumerate(ops) if block_name(op)), default=-1)
    for at, op in enumerate(ops):
        ends = isinstance(op, ResidualNormOp) and label in groups
        if not ends:
            label = block_name(op) or (label if at < last else BEHIND)
        if not is_known(op):
            groups.setdefault(label, []).append(op)
    yield from groups.values()


def is_known(op: Operation) -> bool:
    """Whether an op computes nothing of a model's reals: weights, their codes, masks, counts."""
    return is_constant(op) or not any(is_float(element_of(r)) for r in op.results)


def is_constant(op: Operation) -> bool:
    return all(isinstance(v.owner, Operation) and is_constant(v.owner) for v in op.operands)


def piece_of(
    graph: FuncOp, ops: Sequence[Operation], name: str
) -> tuple[FuncOp, Sequence[SSAValue]]:
    """A function of some ops, and the values of the graph that its arguments are."""
    inside, end = set(ops), return_of(graph)
    needed = list(in_order(graph, [*known_before(ops), *ops]))
    own = {r for op in needed for r in op.results}
    read = list(dict.fromkeys(v for op in needed for v in op.operands if v not in own))
    results = [
        r
        for op in ops
        for r in op.results
        if any(user is end or (user not in inside and not is_known(user)) for user in users(r))
    ]
    made = FuncOp(name, ([v.type for v in read], [r.type for r in results]))
    values: dict[SSAValue, SSAValue] = dict(zip(read, block_of(made).args, strict=True))
    for op in needed:
        copy = located_clone(op, values)
        block_of(made).add_op(copy)
        values.update(zip(op.results, copy.results, strict=True))
    block_of(made).add_op(ReturnOp(*(values[r] for r in results)))
    names = dict(zip(graph.args, argument_names(graph), strict=True))
    made.properties["arg_attrs"] = named(
        names[v] if isinstance(v, BlockArgument) else f"v{at}" for at, v in enumerate(read)
    )
    made.properties["res_attrs"] = named(f"r{at}" for at in range(len(results)))
    return made, read


def known_before(ops: Iterable[Operation]) -> set[Operation]:
    """What ops read, directly or not, that is known without reals."""
    found, left = set[Operation](), list(ops)
    while left:
        for value in left.pop().operands:
            owner = value.owner
            if isinstance(owner, Operation) and is_known(owner) and owner not in found:
                found.add(owner)
                left.append(owner)
    return found


def in_order(graph: FuncOp, ops: Iterable[Operation]) -> Iterator[Operation]:
    wanted = set(ops)
    return (op for op in block_of(graph).ops if op in wanted)
