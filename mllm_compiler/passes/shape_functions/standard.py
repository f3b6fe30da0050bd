"""The standard's own shape inference, one operator at a time, for those without a function here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import numpy as np
import onnx
from onnx import TypeProto, helper, numpy_helper
from onnx.shape_inference import infer_node_outputs
from xdsl.dialects.builtin import TensorType, UnrankedTensorType
from xdsl.ir import Attribute

from mllm_compiler.dialects.dims import UNKNOWN, Dim, dims_of, tensor_of
from mllm_compiler.dialects.onnx_attributes import value_of
from mllm_compiler.dialects.onnx_types import (
    OptionalType,
    SequenceType,
    UnknownType,
    element_type,
)
from mllm_compiler.passes.shape_functions.elementwise import ELEMENT_NUMBERS
from mllm_compiler.passes.shape_functions.knowledge import Known, Shapes, of_type

if TYPE_CHECKING:
    from mllm_compiler.dialects.onnx_op import OnnxOp

_NUMBERS: Final = {element: number for number, element in ELEMENT_NUMBERS.items()}


def standard(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """What `onnx.shape_inference` says of the operator's results; nothing where it fails."""
    nothing = [Known()] * len(op.outputs)
    if op.DOMAIN not in ("", "ai.onnx.ml") or op.GRAPHS:
        return nothing
    inputs = [f"i{i}" if v is not None else "" for i, v in enumerate(op.inputs)]
    outputs = [f"o{i}" if v is not None else "" for i, v in enumerate(op.outputs)]
    types: dict[str, TypeProto] = {}
    data: dict[str, onnx.TensorProto] = {}
    for name, value in zip(inputs, op.inputs, strict=True):
        if value is None:
            continue
        proto = _proto(shapes.of(value).as_type())
        if proto is None:
            return nothing
        types[name] = proto
        array = shapes.array(value)
        if array is not None:
            data[name] = numpy_helper.from_array(np.asarray(array), name)
    try:
        node = _node(op, inputs, outputs)
        schema = onnx.defs.get_schema(op.OPERATOR, op.opset or op.schema.since, op.DOMAIN)
        imports = [helper.make_opsetid(op.DOMAIN, op.opset or op.schema.since)]
        inferred = infer_node_outputs(schema, node, types, data, opset_imports=imports)
    except Exception:
        # The C++ inference throws whatever it likes on models that break the standard; the
        # verifier has the better message for those.
        return nothing
    return [of_type(_type(inferred.get(name))) for name in outputs]


def _node(op: OnnxOp, inputs: list[str], outputs: list[str]) -> onnx.NodeProto:
    plain: dict[str, object] = {}
    for name, attribute in op.properties.items():
        if name.endswith("SegmentSizes"):
            continue
        value = value_of(attribute)
        plain[name] = numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
    return helper.make_node(op.OPERATOR, inputs, outputs, domain=op.DOMAIN, **plain)  # pyright: ignore[reportArgumentType]


def _proto(type: Attribute) -> TypeProto | None:
    element = element_type(type)
    if element is not None:
        number = _NUMBERS.get(element)
        if number is None:
            return None
        if isinstance(type, UnrankedTensorType):
            return helper.make_tensor_type_proto(number, None)
        dims = dims_of(cast("TensorType[Attribute]", type))
        shape = [d.as_int() if d.as_int() is not None else _name(d) for d in dims]
        return helper.make_tensor_type_proto(number, shape)
    if isinstance(type, SequenceType):
        inner = _proto(type.element)
        return None if inner is None else helper.make_sequence_type_proto(inner)
    if isinstance(type, OptionalType):
        inner = _proto(type.element)
        return None if inner is None else helper.make_optional_type_proto(inner)
    return None


def _name(dim: Dim) -> str | None:
    return None if dim.unknown else dim.text


def _type(proto: TypeProto | None) -> Attribute:
    match proto and proto.WhichOneof("value"):
        case "tensor_type":
            return _tensor(cast(TypeProto, proto).tensor_type)
        case "sequence_type":
            return SequenceType(_type(cast(TypeProto, proto).sequence_type.elem_type))
        case "optional_type":
            return OptionalType(_type(cast(TypeProto, proto).optional_type.elem_type))
        case _:
            return UnknownType()


def _tensor(proto: TypeProto.Tensor) -> Attribute:
    element = ELEMENT_NUMBERS.get(proto.elem_type)
    if element is None:
        return UnknownType()
    if not proto.HasField("shape"):
        return UnrankedTensorType(element)
    dims: list[Dim] = []
    for dim in proto.shape.dim:
        if dim.HasField("dim_value"):
            dims.append(Dim.const(dim.dim_value))
        else:
            dims.append(Dim.parse(dim.dim_param) if dim.dim_param else UNKNOWN)
    return tensor_of(element, dims)
