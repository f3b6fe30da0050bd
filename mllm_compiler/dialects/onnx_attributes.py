"""Attribute values of ONNX operators: their kinds, and the plain Python value of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import (
    ArrayAttr,
    BytesAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IntAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    TensorType,
    f32,
    i64,
)
from xdsl.ir import Attribute, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from mllm_compiler.dialects.mllm.constants import BlobAttr, in_bytes
from mllm_compiler.dialects.onnx_types import NUMPY, StringType, element_of_numpy

Value = (
    int
    | float
    | str
    | tuple[int, ...]
    | tuple[float, ...]
    | tuple[str, ...]
    | NDArray[np.generic]
    | Attribute
    | None
)
"""A plain attribute value; a type or a handle of a large tensor stays an attribute."""


@irdl_attr_definition
class StringsAttr(ParametrizedAttribute):
    """A tensor of strings: `#onnx.strings<[2], ["a", "b"]>`."""

    name = "onnx.strings"

    shape: ArrayAttr[IntAttr]
    data: ArrayAttr[StringAttr]

    @classmethod
    def of(cls, array: NDArray[np.generic]) -> StringsAttr:
        """The attribute of an array of `str`."""
        texts = ArrayAttr(StringAttr(str(s)) for s in array.reshape(-1))
        return cls(ArrayAttr(IntAttr(n) for n in array.shape), texts)

    @property
    def dims(self) -> tuple[int, ...]:
        """The shape."""
        return tuple(n.data for n in self.shape)

    def array(self) -> NDArray[np.generic]:
        """The array of `str`."""
        return np.array([s.data for s in self.data], np.object_).reshape(self.dims)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        """Reads shape and texts between angle brackets."""
        square = parser.Delimiter.SQUARE
        with parser.in_angle_brackets():
            shape = parser.parse_comma_separated_list(square, parser.parse_integer)
            parser.parse_punctuation(",")
            texts = parser.parse_comma_separated_list(square, parser.parse_str_literal)
        return [ArrayAttr(IntAttr(n) for n in shape), ArrayAttr(StringAttr(t) for t in texts)]

    def print_parameters(self, printer: Printer) -> None:
        """Writes shape and texts between angle brackets."""
        with printer.in_angle_brackets():
            printer.print_string(f"{list(self.dims)}, ")
            printer.print_attribute(self.data)


ATTRIBUTES: Final = [StringsAttr]
"""What the dialect registers."""


def kind_of(attribute: Attribute) -> str:
    """The kind that the standard gives an attribute value: `int`, `floats`, `tensor` ..."""
    match attribute:
        case IntegerAttr():
            return "int"
        case FloatAttr():
            return "float"
        case StringAttr():
            return "string"
        case DenseArrayBase():
            return "ints" if isinstance(attribute.elt_type, IntegerType) else "floats"
        case ArrayAttr():
            return "strings"
        case DenseIntOrFPElementsAttr() | BlobAttr() | StringsAttr():
            return "tensor"
        case TypeAttribute():
            return "type_proto"
        case _:
            return "unknown"


def value_of(attribute: Attribute) -> Value:
    """The plain value of an attribute."""
    match attribute:
        case IntegerAttr() | FloatAttr():
            return attribute.value.data
        case StringAttr():
            return attribute.data
        case DenseArrayBase():
            return cast("tuple[int, ...]", tuple(cast(Any, attribute).get_values()))
        case ArrayAttr():
            return tuple(cast(StringAttr, s).data for s in attribute)
        case DenseIntOrFPElementsAttr():
            return array_of_dense(attribute)
        case StringsAttr():
            return attribute.array()
        case _:
            return attribute


def attribute_of(
    value: int | float | str | Sequence[int] | Sequence[float] | Sequence[str], kind: str
) -> Attribute:
    """The attribute of a plain value of one of the kinds without tensors, types and graphs."""
    match kind:
        case "int":
            return IntegerAttr(cast(int, value), i64)
        case "float":
            return FloatAttr(cast(float, value), f32)
        case "string":
            return StringAttr(cast(str, value))
        case "ints":
            return DenseArrayBase.from_list(i64, list(cast("Sequence[int]", value)))
        case "floats":
            return DenseArrayBase.from_list(f32, list(cast("Sequence[float]", value)))
        case "strings":
            return ArrayAttr(StringAttr(s) for s in cast("Sequence[str]", value))
        case _:
            raise ValueError(f"no attribute is made of a plain value of kind {kind}")


def tensor_attribute(array: NDArray[np.generic]) -> Attribute:
    """The attribute of a small tensor."""
    element = element_of_numpy(array.dtype)
    if isinstance(element, StringType):
        return StringsAttr.of(array)
    raw = np.ascontiguousarray(in_bytes(array)).tobytes()
    type = cast("TensorType[IntegerType]", TensorType(element, array.shape))
    return DenseIntOrFPElementsAttr(type, BytesAttr(raw))


def array_of_dense(attribute: DenseIntOrFPElementsAttr) -> NDArray[np.generic]:
    """The array of a dense attribute of any ONNX dtype; a single stored element is a splat."""
    dtype, shape = NUMPY[attribute.get_element_type()], attribute.get_shape()
    flat = np.frombuffer(attribute.data.data, np.uint8 if dtype == np.bool_ else dtype)
    flat = flat != 0 if dtype == np.bool_ else flat
    return flat.reshape(shape) if flat.size != 1 else np.broadcast_to(flat[0], shape)
