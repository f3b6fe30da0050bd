"""ONNX types as IR types, with named symbolic dims."""

from __future__ import annotations

import re
from typing import Final, cast

import onnx_ir as ir
from xdsl.dialects.builtin import UnrankedTensorType
from xdsl.ir import Attribute

from mllm_compiler.dialects.dims import UNKNOWN, Dim, tensor_of
from mllm_compiler.dialects.onnx_types import (
    ELEMENTS,
    OptionalType,
    SequenceType,
    SparseType,
    UnknownType,
)

LONGEST_DIM: Final = 500
"""Characters of a dimension that is read."""


def element_of(dtype: ir.DataType) -> Attribute:
    """The element type of an ONNX dtype.

    Raises:
        KeyError: It is undefined.
    """
    return ELEMENTS[dtype.name.lower()]


def type_of(value: ir.Value, *, invent: bool = False) -> Attribute:
    """The type that the model states for a value; `!onnx.unknown` where it states none.

    Args:
        value: The value.
        invent: Name an unnamed dim after the value and its position (for a graph's inputs).
    """
    dims = None
    if value.shape is not None:
        stem = f"{value.name}_dim" if invent else None
        dims = [_dim(d, stem and f"{stem}_{i}") for i, d in enumerate(value.shape)]
    return _typed(value.type, dims)


def type_attribute(described: ir.TypeAndShape) -> Attribute:
    """The type that an attribute of kind `type_proto` states."""
    dims = None if described.shape is None else [_dim(d, None) for d in described.shape]
    return _typed(described.type, dims)


def _typed(type: ir.TypeProtocol | None, dims: list[Dim] | None) -> Attribute:
    match type:
        case ir.TensorType():
            element = ELEMENTS.get(type.dtype.name.lower())
            if element is None:
                return UnknownType()
            return UnrankedTensorType(element) if dims is None else tensor_of(element, dims)
        case ir.SparseTensorType():
            return SparseType(_typed(ir.TensorType(type.dtype), dims))
        case ir.SequenceType():
            return SequenceType(_typed(type.elem_type, dims))
        case ir.OptionalType():
            return OptionalType(_typed(type.elem_type, dims))
        case _:
            return UnknownType()


def _dim(dim: int | ir.SymbolicDim, invented: str | None) -> Dim:
    if isinstance(dim, int) and dim >= 0:
        return Dim.const(dim)
    stated = UNKNOWN if isinstance(dim, int) or not dim.value else parse_dim(dim.value)
    return parse_dim(invented) if stated.unknown and invented else stated


def parse_dim(text: str) -> Dim:
    """A dimension as an exporter spells it; what is no expression becomes one symbol.

    What no exporter spells so long, what is negative, or what is no UTF-8 (protobuf then gives
    bytes), is unknown.
    """
    if not isinstance(cast(object, text), str) or len(text) > LONGEST_DIM:
        return UNKNOWN
    try:
        dim = Dim.parse(text)
        return UNKNOWN if (dim.as_int() or 0) < 0 else dim
    except (ValueError, ZeroDivisionError):
        name = re.sub(r"[^\w.]", "_", text)
        return Dim.symbol(name if name[:1].isalpha() or name[:1] == "_" else f"_{name}")
