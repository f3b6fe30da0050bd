"""Simpler models made of a model without taking nodes away; None where that cannot be."""

from __future__ import annotations

from collections.abc import Collection

from onnx import AttributeProto, GraphProto, ModelProto, TypeProto, helper, inliner

from mllm_compiler.reduce.cuts import without_unread
from mllm_compiler.reduce.proto import (
    Types,
    copy_of,
    declared,
    graphs,
    keep,
    key_of,
    made,
    nodes,
    reads,
)


def weight_names(model: ModelProto) -> list[str]:
    """The weights of the model's graph, as `as_inputs` names them."""
    return [t.name for t in model.graph.initializer]


def as_inputs(model: ModelProto, names: Collection[str], types: Types) -> ModelProto | None:
    """The model in which weights are inputs."""
    cut = copy_of(model)
    known = {i.name for i in cut.graph.input}
    for tensor in cut.graph.initializer:
        if tensor.name in names and tensor.name not in known:
            type = helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
            cut.graph.input.append(declared(tensor.name, type))
    keep(cut.graph.initializer, (t for t in cut.graph.initializer if t.name not in names))
    return cut


def attribute_names(model: ModelProto) -> list[str]:
    """The attributes that are no graphs, as `without_attributes` names them."""
    return [
        f"{key_of(node)}.{a.name}"
        for node in nodes(model)
        for a in node.attribute
        if a.type != AttributeProto.GRAPH
    ]


def without_attributes(model: ModelProto, names: Collection[str], types: Types) -> ModelProto:
    """The model without attributes, which then have their defaults."""
    cut = copy_of(model)
    for node in nodes(cut):
        key = key_of(node)
        keep(node.attribute, (a for a in node.attribute if f"{key}.{a.name}" not in names))
    return without_unread(cut)


def argument_names(model: ModelProto) -> list[str]:
    """The arguments of nodes that have more than one, as `without_arguments` names them."""
    return [
        f"{key_of(node)}.{at}"
        for node in nodes(model)
        if len(node.input) > 1
        for at, name in enumerate(node.input)
        if name
    ]


def without_arguments(model: ModelProto, names: Collection[str], types: Types) -> ModelProto:
    """The model without optional arguments."""
    cut = copy_of(model)
    for node in nodes(cut):
        key = key_of(node)
        kept = ["" if f"{key}.{at}" in names else name for at, name in enumerate(node.input)]
        while kept and not kept[-1]:
            kept.pop()
        node.input[:] = kept
    return without_unread(cut)


def body_names(model: ModelProto) -> list[str]:
    """The graphs inside nodes, as `hoisted` names them."""
    return [
        f"{key_of(node)}.{a.name}"
        for node in nodes(model)
        for a in node.attribute
        if a.type == AttributeProto.GRAPH
    ]


def hoisted(model: ModelProto, names: Collection[str], types: Types) -> ModelProto | None:
    """The model that is one graph inside a node; what that graph captures becomes an input."""
    found = [
        a.g for node in nodes(model) for a in node.attribute if f"{key_of(node)}.{a.name}" in names
    ]
    return _standing_alone(model, found[0], types) if len(found) == 1 else None


def _standing_alone(model: ModelProto, body: GraphProto, types: Types) -> ModelProto | None:
    cut = copy_of(model)
    cut.graph.CopyFrom(body)
    outer = {t.name: t for g in graphs(model) for t in g.initializer}
    inner = {v.name for g in graphs(cut) for v in (*g.input, *g.initializer)} | made(cut)
    needed = {*reads(cut), *(o.name for o in cut.graph.output)} - inner
    cut.graph.initializer.extend(outer[n] for n in sorted(needed & outer.keys()))
    captured = sorted(needed - outer.keys())
    for info in (*cut.graph.input, *cut.graph.output):
        if not _is_whole(info.type) and info.name in types:
            info.type.CopyFrom(types[info.name])
    if any(n not in types for n in captured):
        return None
    cut.graph.input.extend(declared(n, types[n]) for n in captured)
    return without_unread(cut)


def _is_whole(type: TypeProto) -> bool:
    kind = type.WhichOneof("value")
    return kind is not None and (kind != "tensor_type" or type.tensor_type.HasField("shape"))


def inlined(model: ModelProto) -> ModelProto | None:
    """The model in which each call of a function is the function's body."""
    return inliner.inline_local_functions(model) if model.functions else None


def plain(model: ModelProto) -> ModelProto:
    """The model without texts and declarations that only people and other tools read."""
    cut = copy_of(model)
    used = {n.domain for n in nodes(cut)} | {f.domain for f in cut.functions}
    used |= {n.domain for f in cut.functions for n in f.node}
    keep(cut.opset_import, (o for o in cut.opset_import if not o.domain or o.domain in used))
    for field in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        cut.ClearField(field)
    del cut.metadata_props[:]
    for graph in graphs(cut):
        graph.ClearField("doc_string")
        del graph.value_info[:]
        del graph.quantization_annotation[:]
        del graph.metadata_props[:]
    for node in nodes(cut):
        node.ClearField("doc_string")
        del node.metadata_props[:]
    return cut
