"""The types of a model's values, so that any of them can become an input."""

from __future__ import annotations

from onnx import ModelProto, shape_inference
from onnx.shape_inference import InferenceError

from mllm_compiler.reduce.proto import Types, graphs


def value_types(model: ModelProto) -> Types:
    """The types that the model declares, and those that the standard's shape functions find."""
    types = _declared(model)
    try:
        inferred = shape_inference.infer_shapes(model, data_prop=True)
    except (InferenceError, ValueError, RuntimeError):
        return types
    return _declared(inferred) | types


def _declared(model: ModelProto) -> Types:
    return {
        info.name: info.type
        for graph in graphs(model)
        for info in (*graph.value_info, *graph.input, *graph.output)
        if info.type.HasField("tensor_type") and info.type.tensor_type.HasField("shape")
    }
