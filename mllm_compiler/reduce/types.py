"""The types of a model's values, so that any of them can become an input."""

from __future__ import annotations

from pathlib import Path

from onnx import ModelProto, TypeProto, helper, shape_inference
from onnx.shape_inference import InferenceError
from xdsl.ir import Attribute

from mllm_compiler.backends.onnx.types import shape_as_onnx, type_of
from mllm_compiler.dialects import make_context
from mllm_compiler.dialects.locations import location_name
from mllm_compiler.importer import import_model
from mllm_compiler.passes.graphs import graphs as functions_of
from mllm_compiler.pipelines import pass_class
from mllm_compiler.reduce.proto import Types, graphs, made


def value_types(model: ModelProto) -> Types:
    """The types that the model declares, and those that the standard's shape functions find."""
    types = _declared(model)
    try:
        inferred = shape_inference.infer_shapes(model, data_prop=True)
    except (InferenceError, ValueError, RuntimeError):
        return types
    return _declared(inferred) | types


def more_types(model: ModelProto, source: Path, known: Types) -> Types:
    """The types that our own inference adds: operators of other domains, computed shapes.

    Args:
        model: The model.
        source: Its file.
        known: What is known already, which stays.
    """
    if made(model) <= known.keys():
        return known
    try:
        imported = import_model(source)
        pass_class("infer-shapes")().apply(make_context(imported.store), imported.module)
    except Exception:
        # The model is one that fails, perhaps right here: without more types it is cut less.
        return known
    ops = {location_name(op): op for f in functions_of(imported.module) for op in f.walk()}
    found = dict(known)
    for at, node in enumerate(model.graph.node):
        op = ops.get(node.name or f"{node.op_type}_{at}")
        names = [o for o in node.output if o]
        if op is None or len(op.results) != len(names):
            continue
        for name, result in zip(names, op.results, strict=True):
            type = _type_proto(result.type)
            if name not in found and type is not None:
                found[name] = type
    return found


def _type_proto(type: Attribute) -> TypeProto | None:
    kind, shape = type_of(type), shape_as_onnx(type)
    if kind is None or shape is None:
        return None
    dims = [d if isinstance(d, int) else d.value for d in shape]
    return helper.make_tensor_type_proto(int(kind.dtype), dims)


def _declared(model: ModelProto) -> Types:
    return {
        info.name: info.type
        for graph in graphs(model)
        for info in (*graph.value_info, *graph.input, *graph.output)
        if info.type.HasField("tensor_type") and info.type.tensor_type.HasField("shape")
    }
