"""Ops that are a call: operands by position, properties by name.

The custom form names operands by position, `none` where an optional one is absent:

    %y = cpu.f32_linear %x, %w, none {n = 64 : i64, activation = "silu"} : (...) -> tensor<...>
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Self, cast

from xdsl.dialects.builtin import (
    BoolAttr,
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    f64,
    i32,
    i64,
)
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer

SEGMENTS = "operandSegmentSizes"

Value = bool | int | float | str | Sequence[int] | Attribute
"""What a property may be made from."""


class CallOp(IRDLOperation):
    """Base of the ops of a target: a call of a kernel, or of an operator of a vendor."""

    def arguments(self) -> list[SSAValue | None]:
        """The operands by position; an absent optional one is None."""
        arguments: list[SSAValue | None] = []
        for name, _ in self.get_irdl_definition().operands:
            value: object = getattr(self, name)
            if isinstance(value, Sequence):
                arguments.extend(cast(Sequence[SSAValue], value))
                continue
            arguments.append(cast(SSAValue | None, value))
        return arguments

    def print(self, printer: Printer) -> None:
        """Writes the custom form."""
        arguments = self.arguments()
        if arguments:
            printer.print_string(" ")
            printer.print_list(arguments, lambda v: _print_argument(printer, v))
        named = {k: v for k, v in self.properties.items() if k != SEGMENTS} | self.attributes
        if named:
            printer.print_string(" ")
            printer.print_attr_dict(named)
        printer.print_string(" : ")
        printer.print_function_type(self.operand_types, self.result_types)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Reads the custom form."""
        position = parser.pos
        arguments = _parse_arguments(parser)
        named = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        type = parser.parse_function_type()
        given = [a for a in arguments if a is not None]
        values = iter(parser.resolve_operands(given, type.inputs.data, position))
        made = cls.create(
            operands=(),
            result_types=type.outputs.data,
            attributes={k: v for k, v in named.items() if k not in cls._property_names()},
            properties={k: v for k, v in named.items() if k in cls._property_names()},
        )
        made.set_arguments([None if a is None else next(values) for a in arguments])
        return made

    @classmethod
    def call(
        cls,
        arguments: Sequence[SSAValue | None],
        result: Attribute | Sequence[Attribute] | None,
        /,
        **properties: Value,
    ) -> Self:
        """Makes the op from its arguments by position and plain Python values."""
        types = (result,) if isinstance(result, Attribute) else result
        made = cls.create(
            result_types=types or (),
            properties={name: attribute_of(value) for name, value in properties.items()},
        )
        made.set_arguments(arguments)
        return made

    def set_arguments(self, arguments: Sequence[SSAValue | None]) -> None:
        """Replaces the operands, by position, and the record of which are present."""
        self.operands = [a for a in arguments if a is not None]
        if SEGMENTS in self._property_names():
            sizes = [0 if a is None else 1 for a in arguments]
            self.properties[SEGMENTS] = DenseArrayBase.from_list(i32, sizes)

    @classmethod
    def _property_names(cls) -> Collection[str]:
        return cls.get_irdl_definition().properties.keys()


def ints(array: DenseArrayBase) -> list[int]:
    """The values of an integer array attribute."""
    return list(cast(DenseArrayBase[IntegerType], array).get_values())


def attribute_of(value: Value) -> Attribute:
    """The attribute that a property of this Python value has."""
    match value:
        case bool():
            return BoolAttr.from_bool(value)
        case int():
            return IntegerAttr(value, i64)
        case float():
            return FloatAttr(value, f64)
        case str():
            return StringAttr(value)
        case Attribute():
            return value
        case _:
            return DenseArrayBase.from_list(i64, list(value))


def _print_argument(printer: Printer, argument: SSAValue | None) -> None:
    if argument is None:
        printer.print_string("none")
        return
    printer.print_ssa_value(argument)


def _parse_arguments(parser: Parser) -> list[UnresolvedOperand | None]:
    arguments: list[UnresolvedOperand | None] = []
    while True:
        if parser.parse_optional_keyword("none"):
            arguments.append(None)
        elif (operand := parser.parse_optional_unresolved_operand()) is not None:
            arguments.append(operand)
        else:
            return arguments
        if parser.parse_optional_punctuation(",") is None:
            return arguments
