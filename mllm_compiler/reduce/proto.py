"""Walks over the messages of an ONNX model: graphs inside graphs, nodes, tensors, uses of values.

Cuts work on the protobuf, so that a model that the importer refuses can be cut as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TypeVar

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
from google.protobuf.message import Message
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
)

Types = dict[str, TypeProto]
"""The type of each value whose type is known."""

_M = TypeVar("_M", bound=Message)


def copy_of(model: ModelProto) -> ModelProto:
    """A copy to cut."""
    copied = ModelProto()
    copied.CopyFrom(model)
    return copied


def keep(field: RepeatedCompositeFieldContainer[_M], kept: Iterable[_M]) -> None:
    """Leaves only some messages of a repeated field."""
    messages = list(kept)
    if len(messages) != len(field):
        del field[:]
        field.extend(messages)


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs in a node's attributes."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def graphs(model: ModelProto) -> Iterator[GraphProto]:
    """The model's graph and every graph inside its nodes, outer ones first."""
    waiting = [model.graph]
    while waiting:
        graph = waiting.pop(0)
        yield graph
        waiting.extend(body for node in graph.node for body in bodies(node))


def nodes(model: ModelProto) -> Iterator[NodeProto]:
    """The nodes of all graphs."""
    return (node for graph in graphs(model) for node in graph.node)


def node_count(model: ModelProto) -> int:
    """The nodes of all graphs and functions."""
    return sum(1 for _ in nodes(model)) + sum(len(f.node) for f in model.functions)


def key_of(node: NodeProto) -> str:
    """What tells a node from others while nodes around it go: its first result."""
    return next((o for o in node.output if o), node.name)


def reads(model: ModelProto) -> Counter[str]:
    """How often nodes and the outputs of graphs inside nodes read each value."""
    count: Counter[str] = Counter()
    for node in nodes(model):
        count.update(name for name in node.input if name)
        count.update(o.name for body in bodies(node) for o in body.output)
    return count


def made(model: ModelProto) -> set[str]:
    """The values that nodes make."""
    return {o for node in nodes(model) for o in node.output if o}


def tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Every tensor of every graph: initialisers, and those in attributes."""
    for graph in graphs(model):
        yield from graph.initializer
    for node in nodes(model):
        yield from (a.t for a in node.attribute if a.type == AttributeProto.TENSOR)


def declared(name: str, type: TypeProto) -> ValueInfoProto:
    """The declaration of an input or output."""
    info = ValueInfoProto(name=name)
    info.type.CopyFrom(type)
    return info
