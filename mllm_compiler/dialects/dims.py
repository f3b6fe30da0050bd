"""Symbolic dimensions of tensors: the attribute that carries them, and types with it.

A tensor type whose shape is not static has an encoding `#mllm.dims<"batch_size", "past + seq">`
with one canonical expression a dimension; `?` stands for a dimension that only data decide.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import DYNAMIC_INDEX, TensorType
from xdsl.ir import Attribute, Data
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from mllm_compiler.dialects.dim_expressions import UNKNOWN, Atom, Dim, combine

__all__ = ["UNKNOWN", "Atom", "Dim", "DimsAttr", "combine", "dims_of", "tensor_of"]


@irdl_attr_definition
class DimsAttr(Data[tuple[Dim, ...]]):
    """The dimensions of a tensor, one expression each: `#mllm.dims<"batch_size", "64">`."""

    name = "mllm.dims"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[Dim, ...]:
        """Reads the expressions between angle brackets."""
        with parser.in_angle_brackets():
            texts = parser.parse_optional_undelimited_comma_separated_list(
                parser.parse_optional_str_literal, parser.parse_str_literal
            )
        return tuple(Dim.parse(t) for t in texts or ())

    def print_parameter(self, printer: Printer) -> None:
        """Writes the expressions between angle brackets."""
        with printer.in_angle_brackets():
            printer.print_list(self.data, lambda d: printer.print_string_literal(d.text))


def tensor_of(element: Attribute, dims: Sequence[Dim | int]) -> TensorType[Attribute]:
    """The tensor type of these dims; it has an encoding only where one of them is not static."""
    exact = tuple(Dim.of(d) for d in dims)
    shape = [DYNAMIC_INDEX if (n := d.as_int()) is None else n for d in exact]
    if DYNAMIC_INDEX not in shape:
        return TensorType(element, shape)
    return TensorType(element, shape, DimsAttr(exact))


def dims_of(type: TensorType[Attribute]) -> tuple[Dim, ...]:
    """The dims of a tensor type; a dynamic dimension without an expression is unknown."""
    if isinstance(type.encoding, DimsAttr):
        return type.encoding.data
    return tuple(UNKNOWN if n == DYNAMIC_INDEX else Dim.const(n) for n in type.get_shape())
