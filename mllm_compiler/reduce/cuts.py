"""Smaller models made of a model by taking nodes away; None where that cannot be.

A value whose node goes becomes an input of the model with the type that it had, and a value that
nothing reads any more an output: a cut drops only the nodes that it names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from onnx import ModelProto, NodeProto

from mllm_compiler.reduce.proto import (
    Types,
    bodies,
    copy_of,
    declared,
    graphs,
    keep,
    key_of,
    made,
    nodes,
    reads,
)


def node_keys(model: ModelProto) -> list[str]:
    """The nodes of all graphs, as `without_nodes` and `bypassed` name them."""
    return [key_of(node) for node in nodes(model)]


def without_nodes(model: ModelProto, keys: Collection[str], types: Types) -> ModelProto | None:
    """The model without nodes of any graph."""
    cut = copy_of(model)
    gone = {o for n in nodes(cut) if key_of(n) in keys for o in n.output if o}
    for graph in graphs(cut):
        keep(graph.node, (n for n in graph.node if key_of(n) not in keys))
    read = reads(cut)
    lost = sorted(gone & read.keys() - made(cut))
    if any(name not in types for name in lost):
        return None
    cut.graph.input.extend(declared(name, types[name]) for name in lost)
    outputs = [o for o in cut.graph.output if o.name not in gone]
    shown = {o.name for o in outputs}
    loose = [o for n in cut.graph.node for o in n.output if o in types and o not in read]
    outputs += [declared(o, types[o]) for o in loose if o not in shown]
    if not outputs:
        return None
    keep(cut.graph.output, ())
    cut.graph.output.extend(outputs)
    return without_unread(cut)


def _keys(taken: Iterable[NodeProto]) -> set[str]:
    return {key_of(node) for node in taken}


def only_named(model: ModelProto, text: str, types: Types) -> ModelProto | None:
    """The nodes whose names stand in a text."""
    names = {*re.split(r"[\s:,;'()]+", text)}
    others = {key_of(node) for node in nodes(model) if node.name not in names}
    return without_nodes(model, others, types)


def prefix(model: ModelProto, count: int, types: Types) -> ModelProto | None:
    """The first nodes of the model's graph."""
    return without_nodes(model, _keys(model.graph.node[count:]), types)


def suffix(model: ModelProto, start: int, types: Types) -> ModelProto | None:
    """The nodes of the model's graph from one on."""
    return without_nodes(model, _keys(model.graph.node[:start]), types)


def output_names(model: ModelProto) -> list[str]:
    """The outputs, as `without_outputs` names them."""
    return [o.name for o in model.graph.output]


def without_outputs(model: ModelProto, names: Collection[str], types: Types) -> ModelProto | None:
    """The model without outputs, and without what only they need."""
    cut = copy_of(model)
    keep(cut.graph.output, (o for o in cut.graph.output if o.name not in names))
    return trimmed(cut) if cut.graph.output else None


def bypassed(model: ModelProto, keys: Collection[str], types: Types) -> ModelProto | None:
    """The model in which an input of the same type stands for the result of a node."""
    cut, instead = copy_of(model), dict[str, str]()
    for node in nodes(cut):
        key = key_of(node)
        near = next((i for i in node.input if i and types.get(i) == types.get(key, i)), None)
        if key in keys and near is not None:
            instead[key] = instead.get(near, near)
    for node in nodes(cut):
        for at, name in enumerate(node.input):
            node.input[at] = instead.get(name, name)
    read = {*reads(cut), *output_names(cut)}
    for graph in graphs(cut):
        keep(graph.node, (n for n in graph.node if key_of(n) not in instead or read & {*n.output}))
    return without_unread(cut)


def trimmed(model: ModelProto) -> ModelProto:
    """The model without nodes, weights, inputs and functions that no output needs."""
    cut = copy_of(model)
    needed = {*output_names(cut)}
    alive: list[NodeProto] = []
    for node in reversed(cut.graph.node):
        if not node.output or needed & {*node.output}:
            alive.append(node)
            needed |= _captured(node)
    keep(cut.graph.node, reversed(alive))
    return without_unread(cut)


def _captured(node: NodeProto) -> set[str]:
    """What a node and the graphs inside it read."""
    read = {name for name in node.input if name}
    for body in bodies(node):
        read |= {o.name for o in body.output}
        read |= {name for inner in body.node for name in _captured(inner)}
    return read


def without_unread(cut: ModelProto) -> ModelProto:
    """The model itself, less the weights, inputs and functions that nothing reads."""
    read = {*reads(cut), *output_names(cut)}
    for graph in graphs(cut):
        keep(graph.initializer, (t for t in graph.initializer if t.name in read))
        keep(
            graph.sparse_initializer, (s for s in graph.sparse_initializer if s.values.name in read)
        )
        del graph.value_info[:]
    keep(cut.graph.input, (i for i in cut.graph.input if i.name in read))
    called = {(n.domain, n.op_type) for n in nodes(cut)}
    called |= {(n.domain, n.op_type) for f in cut.functions for n in f.node}
    keep(cut.functions, (f for f in cut.functions if (f.domain, f.name) in called))
    return cut
