"""Types of the `onnx` dialect: element types of every ONNX dtype, sequences, optionals, maps.

A dense tensor is the builtin `tensor<...>` type; what ONNX knows beside it stands here.
"""

from __future__ import annotations

from typing import Final

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import (
    ComplexType,
    IntegerType,
    Signedness,
    TensorType,
    UnrankedTensorType,
    bf16,
    f4E2M1FN,
    f6E2M3FN,
    f6E3M2FN,
    f8E4M3FN,
    f8E4M3FNUZ,
    f8E5M2,
    f8E5M2FNUZ,
    f8E8M0FNU,
    f16,
    f32,
    f64,
    i1,
)
from xdsl.ir import Attribute, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.utils.hints import isa


@irdl_attr_definition
class StringType(ParametrizedAttribute, TypeAttribute):
    """The element type of a tensor of strings."""

    name = "onnx.string"


@irdl_attr_definition
class UnknownType(ParametrizedAttribute, TypeAttribute):
    """The type of a value of which the model says nothing and that nothing inferred yet."""

    name = "onnx.unknown"


@irdl_attr_definition
class SequenceType(ParametrizedAttribute, TypeAttribute):
    """A list of values of one type: `!onnx.seq<tensor<*xf32>>`."""

    name = "onnx.seq"
    element: Attribute


@irdl_attr_definition
class OptionalType(ParametrizedAttribute, TypeAttribute):
    """A value that may be absent: `!onnx.opt<tensor<*xf32>>`."""

    name = "onnx.opt"
    element: Attribute


@irdl_attr_definition
class MapType(ParametrizedAttribute, TypeAttribute):
    """A dictionary from integers or strings: `!onnx.map<i64, tensor<f32>>`."""

    name = "onnx.map"
    key: Attribute
    value: Attribute


@irdl_attr_definition
class SparseType(ParametrizedAttribute, TypeAttribute):
    """A sparse tensor, given by its dense type: `!onnx.sparse<tensor<8x8xf32>>`."""

    name = "onnx.sparse"
    dense: Attribute


def _unsigned(width: int) -> IntegerType:
    return IntegerType(width, Signedness.UNSIGNED)


ELEMENTS: Final[dict[str, Attribute]] = {
    "float": f32,
    "uint8": _unsigned(8),
    "int8": IntegerType(8),
    "uint16": _unsigned(16),
    "int16": IntegerType(16),
    "int32": IntegerType(32),
    "int64": IntegerType(64),
    "string": StringType(),
    "bool": i1,
    "float16": f16,
    "double": f64,
    "uint32": _unsigned(32),
    "uint64": _unsigned(64),
    "complex64": ComplexType(f32),
    "complex128": ComplexType(f64),
    "bfloat16": bf16,
    "float8e4m3fn": f8E4M3FN,
    "float8e4m3fnuz": f8E4M3FNUZ,
    "float8e5m2": f8E5M2,
    "float8e5m2fnuz": f8E5M2FNUZ,
    "uint4": _unsigned(4),
    "int4": IntegerType(4),
    "float4e2m1": f4E2M1FN,
    "float8e8m0": f8E8M0FNU,
    "uint2": _unsigned(2),
    "int2": IntegerType(2),
    "float6e2m3": f6E2M3FN,
    "float6e3m2": f6E3M2FN,
}
"""Element types by the name that ONNX type strings use (`tensor(float)`)."""

ELEMENT_NAMES: Final[dict[Attribute, str]] = {t: name for name, t in ELEMENTS.items()}
"""The inverse of `ELEMENTS`."""

_NUMPY: Final[dict[str, type[np.generic]]] = {
    "float": np.float32,
    "uint8": np.uint8,
    "int8": np.int8,
    "uint16": np.uint16,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "string": np.object_,
    "bool": np.bool_,
    "float16": np.float16,
    "double": np.float64,
    "uint32": np.uint32,
    "uint64": np.uint64,
    "complex64": np.complex64,
    "complex128": np.complex128,
    "bfloat16": ml_dtypes.bfloat16,
    "float8e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "float8e5m2": ml_dtypes.float8_e5m2,
    "float8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "uint4": ml_dtypes.uint4,
    "int4": ml_dtypes.int4,
    "float4e2m1": ml_dtypes.float4_e2m1fn,
    "float8e8m0": ml_dtypes.float8_e8m0fnu,
    "uint2": ml_dtypes.uint2,
    "int2": ml_dtypes.int2,
    "float6e2m3": ml_dtypes.float6_e2m3fn,
    "float6e3m2": ml_dtypes.float6_e3m2fn,
}

NUMPY: Final[dict[Attribute, np.dtype[np.generic]]] = {
    ELEMENTS[name]: np.dtype(dtype) for name, dtype in _NUMPY.items()
}
"""NumPy's dtype of each element type, as the standard's own reference holds it."""

_ELEMENT_OF_NUMPY: Final = {dtype: element for element, dtype in NUMPY.items()}


def element_of_numpy(dtype: np.dtype[np.generic]) -> Attribute:
    """The element type of a NumPy dtype; every kind of text is `!onnx.string`.

    Raises:
        KeyError: ONNX has no such dtype.
    """
    return StringType() if dtype.kind in "USO" else _ELEMENT_OF_NUMPY[dtype]


def element_type(type: Attribute) -> Attribute | None:
    """The element type of a tensor type, ranked or not; None for every other type."""
    if isa(type, TensorType[Attribute]) or isa(type, UnrankedTensorType[Attribute]):
        return type.element_type
    return None


def type_string(type: Attribute) -> str | None:
    """How ONNX spells a type (`seq(tensor(float))`); None where it is not known or not ONNX's."""
    element = element_type(type)
    if element is not None:
        name = ELEMENT_NAMES.get(element)
        return name and f"tensor({name})"
    match type:
        case SequenceType():
            inner = type_string(type.element)
            return inner and f"seq({inner})"
        case OptionalType():
            inner = type_string(type.element)
            return inner and f"optional({inner})"
        case MapType():
            key, value = ELEMENT_NAMES.get(type.key), element_type(type.value)
            return None if key is None or value is None else f"map({key}, {ELEMENT_NAMES[value]})"
        case SparseType():
            inner = type_string(type.dense)
            return inner and inner.replace("tensor", "sparse_tensor", 1)
        case _:
            return None


TYPES: Final = [StringType, UnknownType, SequenceType, OptionalType, MapType, SparseType]
"""What the dialect registers."""
