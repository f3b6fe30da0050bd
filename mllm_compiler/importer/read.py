"""Reads an ONNX file: one whole, checked model with functions inlined and nodes in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError
from onnx.inliner import inline_local_functions

from mllm_compiler.errors import CompileError
from mllm_compiler.importer.protobuf import without_tensors

MOST_NODES: Final = 100_000
"""Nodes of a model whose functions are inlined."""


def read_model(file: Path) -> ir.Model:
    """The model of an ONNX file; large tensors are external, in their own file or in `file`.

    Raises:
        CompileError: The file is no ONNX model, or the model is inconsistent.
    """
    proto = read_proto(file)
    _check_versions(proto, file)
    _check_ends(proto.graph, file)
    try:
        ordered = _check_names(proto.graph, file, outer=frozenset())
        for function in proto.functions:
            ordered &= _check_function(function, file)
        model = ir.serde.deserialize_model(proto)
    except CompileError:
        raise
    except Exception as error:  # both libraries raise whatever they met, for text that is no UTF-8
        raise _unreadable(file, error) from error
    if model.functions:
        model = _inlined(model, proto, file)
    if not ordered:
        _sort(model, file)
    return model


def read_proto(file: Path) -> onnx.ModelProto:
    """The protobuf of an ONNX file; large tensors are external.

    Raises:
        CompileError: The file is no ONNX model.
    """
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(without_tensors(file))
    except DecodeError as error:
        raise CompileError(
            "MLC-I001",
            "not an ONNX protobuf",
            location=str(file),
            remedy="give an .onnx file or a model.toml",
        ) from error
    return proto


def _check_versions(proto: onnx.ModelProto, file: Path) -> None:
    if not proto.HasField("graph"):
        raise CompileError(
            "MLC-I001",
            "the file holds no graph",
            location=str(file),
            remedy="give an .onnx file or a model.toml",
        )
    if proto.ir_version > onnx.IR_VERSION:
        raise CompileError(
            "MLC-I008",
            f"the model has IR version {proto.ir_version}, this onnx reads up to {onnx.IR_VERSION}",
            location=str(file),
            remedy="update the onnx package, or export with an older IR version",
        )
    if not proto.opset_import:
        raise CompileError(
            "MLC-I013",
            "the model is malformed: it imports no opset",
            location=str(file),
            remedy="check it with onnx.checker, export it again",
        )
    newest = onnx.defs.onnx_opset_version()
    for imported in proto.opset_import:
        if imported.domain in ("", "ai.onnx") and imported.version > newest:
            raise CompileError(
                "MLC-I008",
                f"the model uses opset {imported.version}, this onnx knows up to {newest}",
                location=str(file),
                remedy="update the onnx package, or export with an older opset",
            )


def _check_ends(graph: onnx.GraphProto, file: Path) -> None:
    """Checks that a graph computes something, and that its ends have dimensions.

    Some exporters write -1 for a dimension that varies, which ONNX Runtime and onnx.checker take.
    """
    if not graph.output:
        raise CompileError(
            "MLC-I013",
            "the model is malformed: its graph has no outputs",
            location=str(file),
            remedy="name what the model computes as outputs, export it again",
        )
    _check_unique([o.name for o in graph.output], file, "graph output")
    for value in (*graph.input, *graph.output):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.dim_value < -1:
                raise CompileError(
                    "MLC-I007",
                    f"tensor '{value.name}' is malformed: dimension {axis} is {dim.dim_value}",
                    location=str(file),
                    remedy="give the dimension its size, or a name where it varies",
                )


def _check_names(graph: onnx.GraphProto, file: Path, outer: frozenset[str]) -> bool:
    """Checks that each value has one definition and each use has one; whether they are in order."""
    inputs = [i.name for i in graph.input]
    weights = [i.name for i in graph.initializer]
    weights += [s.values.name for s in graph.sparse_initializer]
    made = [o for n in graph.node for o in n.output if o]
    ends = [*inputs, *weights, *made, *(o.name for o in graph.output)]
    kinds = [text for n in graph.node for text in (n.name, n.op_type, n.domain)]
    if any(isinstance(cast(object, text), bytes) for text in (*ends, *kinds)):
        raise ValueError("a name is no UTF-8")
    _check_unique(inputs, file, "graph input")
    _check_unique(weights, file, "initialiser")
    # An initialiser may be the default of an input.
    _check_unique([*dict.fromkeys([*inputs, *weights]), *made], file, "value")
    known = {*outer, *inputs, *weights}
    everything = frozenset(known.union(made))
    ordered = True
    for at, node in enumerate(graph.node):
        for name in node.input:
            if not name or name in known:
                continue
            if name not in everything:
                raise _undefined(file, node_name(node, at), name)
            ordered = False
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs) if _has_graph(attribute) else ():
                inside = known if ordered else everything
                ordered &= _check_names(body, file, frozenset(inside))
        known.update(o for o in node.output if o)
    for output in graph.output:
        if output.name not in known:
            raise _undefined(file, f"graph '{graph.name}'", output.name)
    return ordered


def _check_function(function: onnx.FunctionProto, file: Path) -> bool:
    body = onnx.GraphProto(name=function.name)
    body.node.extend(function.node)
    body.input.extend(onnx.ValueInfoProto(name=n) for n in function.input)
    body.output.extend(onnx.ValueInfoProto(name=n) for n in function.output)
    return _check_names(body, file, frozenset())


def _has_graph(attribute: onnx.AttributeProto) -> bool:
    return attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


def _check_unique(names: list[str], file: Path, what: str) -> None:
    if len(set(names)) == len(names):
        return
    twice = next(name for name, count in Counter(names).items() if count > 1)
    raise CompileError(
        "MLC-I009",
        f"{what} '{twice}' is defined twice",
        location=str(file),
        remedy="give each value one name: export the model again",
    )


def _undefined(file: Path, where: str, name: str) -> CompileError:
    return CompileError(
        "MLC-I010",
        f"{where} uses '{name}', which nothing defines",
        location=str(file),
        remedy="export the model again; an input or a weight was lost",
    )


def node_name(node: onnx.NodeProto, index: int) -> str:
    """The name of a node, or its operator and its position."""
    return node.name or f"{node.op_type}_{index}"


def _inlined(model: ir.Model, proto: onnx.ModelProto, file: Path) -> ir.Model:
    """The model without functions; the standard's inliner keeps those that it cannot inline."""
    try:
        count = _inlined_nodes(model.graph, model, {})
        if count > MOST_NODES:
            raise ValueError(f"they stand for {count} nodes, more than {MOST_NODES}")
        whole = inline_local_functions(proto)
        if whole.functions:
            kept = whole.functions[0].name
            raise ValueError(f"'{kept}' calls itself, or has another opset than the model")
        return ir.serde.deserialize_model(whole)
    except Exception as error:
        raise CompileError(
            "MLC-I011",
            f"the model's functions cannot be inlined: {error}",
            location=str(file),
            remedy="export without functions, or run onnx.inliner.inline_local_functions",
        ) from error


def _inlined_nodes(
    body: ir.Graph | ir.Function, model: ir.Model, counts: dict[ir.OperatorIdentifier, int]
) -> int:
    """The nodes of a body with its calls inlined: n functions may stand for 2^n nodes."""
    total = 0
    for node in ir.traversal.RecursiveGraphIterator(body):
        called = node.op_identifier()
        if called in model.functions and called not in counts:
            counts[called] = 0  # where it calls itself, which the inliner refuses
            counts[called] = _inlined_nodes(model.functions[called], model, counts)
        total += counts.get(called, 1)
    return total


def _sort(model: ir.Model, file: Path) -> None:
    try:
        model.graph.sort()
    except ValueError as error:
        raise CompileError(
            "MLC-I012",
            f"the graph has a cycle through {_cycle(model.graph)}",
            location=str(file),
            remedy="ONNX graphs are acyclic: loops are Loop or Scan operators",
        ) from error


def _cycle(graph: ir.Graph) -> str:
    """A few nodes that lie on cycles."""
    waiting = {node: sum(1 for _ in _local(node, graph)) for node in graph}
    ready = [node for node, count in waiting.items() if not count]
    while ready:
        done = ready.pop()
        del waiting[done]
        for after in done.successors():
            if after in waiting:
                waiting[after] = sum(1 for p in _local(after, graph) if p in waiting)
                if not waiting[after]:
                    ready.append(after)
    names = [f"'{n.name or n.op_type}'" for n in waiting]
    return ", ".join(names[:3]) or "its nodes"


def _local(node: ir.Node, graph: ir.Graph) -> Iterator[ir.Node]:
    return (p for p in node.predecessors() if p.graph is graph)


def _unreadable(file: Path, error: BaseException) -> CompileError:
    cause = error
    while (deeper := cause.__cause__ or cause.__context__) is not None:
        cause = deeper
    return CompileError(
        "MLC-I013",
        f"the model is malformed: {cause}",
        location=str(file),
        remedy="check it with onnx.checker, export it again",
    )
