"""Types of the IR as types of ONNX."""

from __future__ import annotations

from typing import Final, cast

import onnx_ir as ir
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute

from mllm_compiler.dialects.dims import dims_of
from mllm_compiler.dialects.onnx_types import (
    ELEMENT_NAMES,
    OptionalType,
    SequenceType,
    SparseType,
    element_type,
)
from mllm_compiler.dialects.types import Tensor

DTYPES: Final[dict[Attribute, ir.DataType]] = {
    element: ir.DataType[name.upper()] for element, name in ELEMENT_NAMES.items()
}
"""ONNX's dtype of each element type."""


def type_of(type: Attribute) -> ir.TypeProtocol | None:
    """The ONNX type of a type; None where it is not known."""
    element = element_type(type)
    if element is not None:
        return ir.TensorType(DTYPES[element]) if element in DTYPES else None
    inner = type_of(type.element) if isinstance(type, SequenceType | OptionalType) else None
    match type:
        case SequenceType() if inner is not None:
            return ir.SequenceType(inner)
        case OptionalType() if inner is not None:
            return ir.OptionalType(inner)
        case SparseType() if (dense := element_type(type.dense)) in DTYPES:
            return ir.SparseTensorType(DTYPES[dense])
        case _:
            return None


def shape_as_onnx(type: Attribute) -> ir.Shape | None:
    """The shape of a tensor type; an expression over symbols is a symbol that is spelled so."""
    if not isinstance(type, TensorType):
        return None
    dims = dims_of(cast("Tensor", type))
    known = [d.as_int() for d in dims]
    return ir.Shape(
        n if n is not None else None if d.unknown else str(d)
        for n, d in zip(known, dims, strict=True)
    )
