"""What every op of the cpu dialect shares: its parameters, its place in the arena.

An op is one call of one C kernel, with operands by position, as the stage table has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import (
    DenseArrayBase,
    FloatAttr,
    IntAttr,
    IntegerAttr,
    StringAttr,
    i1,
)
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from mllm_compiler.dialects.calls import SEGMENTS, CallOp, ints
from mllm_compiler.dialects.dims import Dim, DimsAttr
from mllm_compiler.dialects.mllm.contract import check

LANES = 16
"""Rows of a weight that a packed panel interleaves."""

Param = tuple[str, int | float | str | Dim]
"""A parameter of a stage: its kind (`i64`, `f64`, `expr`, `string`) and its value."""


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


class CpuOp(CallOp):
    """Base of the ops that are one call of one C kernel."""

    ENUMS: ClassVar[dict[str, tuple[str, ...]]] = {}
    """Properties that are one of a few words; their parameter is the word's position."""

    SCALARS: ClassVar[frozenset[str]] = frozenset()
    """Properties of type `#mllm.dims` that hold one expression and no list of them."""

    @classmethod
    def kernel(cls) -> str:
        """The C kernel `mllm_k_<kernel>` that the op is a call of."""
        return cls.name.removeprefix("cpu.")

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
