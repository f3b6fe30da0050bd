"""What every op of the cpu dialect shares: its spelling, its parameters, its place in the arena.

An op is one call of one C kernel. Its custom form names operands by position, `none` where an
optional one is absent, as the stage table does:

    %y = cpu.f32_linear %x, %w, none {n = 64 : i64, activation = "silu"} : (...) -> tensor<...>
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar, Self, cast

from xdsl.dialects.builtin import (
    BoolAttr,
    DenseArrayBase,
    FloatAttr,
    IntAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    f64,
    i1,
    i32,
    i64,
)
from xdsl.ir import Attribute, ParametrizedAttribute, SSAValue
from xdsl.irdl import IRDLOperation, irdl_attr_definition
from xdsl.parser import AttrParser, Parser, UnresolvedOperand
from xdsl.printer import Printer

from mllm_compiler.dialects.dims import Dim, DimsAttr
from mllm_compiler.dialects.mllm.contract import check

LANES = 16
"""Rows of a weight that a packed panel interleaves."""

SEGMENTS = "operandSegmentSizes"

Param = tuple[str, int | float | Dim]
"""A parameter of a stage: its kind (`i64`, `f64`, `expr`) and its value."""

Value = bool | int | float | str | Sequence[int] | Attribute
"""What a property may be made from."""


@irdl_attr_definition
class SlotAttr(ParametrizedAttribute):
    """Where a tensor lies in the arena: `#cpu.slot<offset, bytes>`, bytes at the symbol bounds."""

    name = "cpu.slot"
    offset: IntAttr
    size: IntAttr

    @classmethod
    def of(cls, offset: int, size: int) -> SlotAttr:
        """The slot of `size` bytes at `offset`."""
        return cls(IntAttr(offset), IntAttr(size))

    def print_parameters(self, printer: Printer) -> None:
        """Writes `<offset, bytes>`."""
        with printer.in_angle_brackets():
            printer.print_string(f"{self.offset.data}, {self.size.data}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        """Reads `<offset, bytes>`."""
        with parser.in_angle_brackets():
            offset = parser.parse_integer()
            parser.parse_punctuation(",")
            size = parser.parse_integer()
        return (IntAttr(offset), IntAttr(size))


@irdl_attr_definition
class CacheAttr(ParametrizedAttribute):
    """The KV cache that a graph appends to and reads, on the function.

    `#cpu.cache<"decoder", 30 x 3 x 64, 2048, "past_sequence_length">`: its name, layers, heads of
    keys and values, channels of a head, tokens that it holds, and the symbol that is its length.
    """

    name = "cpu.cache"
    cache: StringAttr
    layers: IntAttr
    kv_heads: IntAttr
    head_dim: IntAttr
    max_tokens: IntAttr
    past_symbol: StringAttr

    @classmethod
    def of(cls, cache: str, shape: tuple[int, int, int], max_tokens: int, past: str) -> CacheAttr:
        """The cache of (layers, heads, channels); `past` is empty where no dim depends on it."""
        layers, heads, channels = (IntAttr(n) for n in shape)
        past_symbol = StringAttr(past)
        return cls(StringAttr(cache), layers, heads, channels, IntAttr(max_tokens), past_symbol)

    def print_parameters(self, printer: Printer) -> None:
        """Writes what `parse_parameters` reads."""
        shape = " x ".join(str(n.data) for n in (self.layers, self.kv_heads, self.head_dim))
        with printer.in_angle_brackets():
            printer.print_string_literal(self.cache.data)
            printer.print_string(f", {shape}, {self.max_tokens.data}, ")
            printer.print_string_literal(self.past_symbol.data)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        """Reads name, extents, tokens and symbol between angle brackets."""
        with parser.in_angle_brackets():
            name = parser.parse_str_literal()
            extents: list[int] = []
            for punctuation in (",", "x", "x", ","):
                if punctuation == ",":
                    parser.parse_punctuation(",")
                else:
                    parser.parse_characters("x")
                extents.append(parser.parse_integer())
            parser.parse_punctuation(",")
            symbol = parser.parse_str_literal()
        return (StringAttr(name), *(IntAttr(n) for n in extents), StringAttr(symbol))


class CpuOp(IRDLOperation):
    """Base of the ops that are one call of one C kernel."""

    ENUMS: ClassVar[dict[str, tuple[str, ...]]] = {}
    """Properties that are one of a few words; their parameter is the word's position."""

    SCALARS: ClassVar[frozenset[str]] = frozenset()
    """Properties of type `#mllm.dims` that hold one expression and no list of them."""

    @classmethod
    def kernel(cls) -> str:
        """The C kernel `mllm_k_<kernel>` that the op is a call of."""
        return cls.name.removeprefix("cpu.")

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

    def params(self) -> list[Param]:
        """The properties in declaration order as parameters of the stage."""
        params: list[Param] = []
        for name in self.get_irdl_definition().properties:
            if name != SEGMENTS:
                params.extend(self._encode(name, self.properties[name]))
        return params

    def _encode(self, name: str, value: Attribute) -> list[Param]:
        match value:
            case StringAttr():
                return [("i64", self.ENUMS[name].index(value.data))]
            case IntegerAttr():
                return [("i64", abs(value.value.data) if value.type == i1 else value.value.data)]
            case FloatAttr():
                return [("f64", value.value.data)]
            case DimsAttr():
                length = [] if name in self.SCALARS else [("i64", len(value.data))]
                return [*length, *(("expr", d) for d in value.data)]
            case DenseArrayBase():
                items = ints(value)
                return [("i64", len(items)), *(("i64", v) for v in items)]
            case _:
                raise TypeError(f"{self.name}: property {name} has no encoding")

    def verify_(self) -> None:
        """Checks the op's numbered constraints and the spelling of its enumerations."""
        for name, allowed in self.ENUMS.items():
            value = self.properties[name]
            known = isinstance(value, StringAttr) and value.data in allowed
            check(self, 0, known, f"{name} is one of {', '.join(allowed)}")
        self.check_contract()

    def check_contract(self) -> None:
        """The op's numbered constraints; an op without any keeps this."""

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
