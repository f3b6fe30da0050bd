"""The hal dialect: where an op runs, and how a graph is divided, as attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from xdsl.dialects.builtin import ArrayAttr, IntAttr, StringAttr
from xdsl.ir import Attribute, Dialect, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer


@irdl_attr_definition
class PlaceAttr(ParametrizedAttribute):
    """The target of an op and why: `#hal.place<"c", "f32_linear">`."""

    name = "hal.place"
    target: StringAttr
    why: StringAttr

    @classmethod
    def of(cls, target: str, why: str) -> PlaceAttr:
        """The place of a target and a reason."""
        return cls(StringAttr(target), StringAttr(why))

    def print_parameters(self, printer: Printer) -> None:
        """Writes target and reason between angle brackets."""
        with printer.in_angle_brackets():
            printer.print_string_literal(self.target.data)
            printer.print_string(", ")
            printer.print_string_literal(self.why.data)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        """Reads target and reason between angle brackets."""
        with parser.in_angle_brackets():
            target = parser.parse_str_literal()
            parser.parse_punctuation(",")
            why = parser.parse_str_literal()
        return (StringAttr(target), StringAttr(why))


@irdl_attr_definition
class PlanAttr(ParametrizedAttribute):
    """How a graph is divided: `#hal.plan<"qnn", device_operations = 40, operations = 43, ..>`.

    After the device come whole numbers, all of `KEYS` in their order: the operations and the
    floating-point operations of the device and of the graph, the bytes that its calls take and give
    and those of weights that both sides store, and what a run costs by the tables, in nanoseconds,
    beside what it would cost on the host alone.
    """

    name = "hal.plan"
    device: StringAttr
    numbers: ArrayAttr[IntAttr]

    KEYS: ClassVar = (
        "device_operations",
        "operations",
        "device_flops",
        "flops",
        "bytes_in",
        "bytes_out",
        "bytes_doubled",
        "cost_ns",
        "host_cost_ns",
    )

    @classmethod
    def of(cls, device: str, facts: Mapping[str, int]) -> PlanAttr:
        """The plan of a device."""
        return cls(StringAttr(device), ArrayAttr(IntAttr(facts[key]) for key in cls.KEYS))

    @property
    def facts(self) -> dict[str, int]:
        """The numbers by name."""
        return {key: n.data for key, n in zip(self.KEYS, self.numbers, strict=True)}

    def print_parameters(self, printer: Printer) -> None:
        """Writes the device and the numbers between angle brackets."""
        with printer.in_angle_brackets():
            printer.print_string_literal(self.device.data)
            for key, number in self.facts.items():
                printer.print_string(f", {key} = {number}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        """Reads the device and the numbers between angle brackets."""
        numbers: list[IntAttr] = []
        with parser.in_angle_brackets():
            device = parser.parse_str_literal()
            for key in cls.KEYS:
                parser.parse_punctuation(",")
                parser.parse_keyword(key)
                parser.parse_punctuation("=")
                numbers.append(IntAttr(parser.parse_integer(allow_boolean=False)))
        return (StringAttr(device), ArrayAttr(numbers))


Hal = Dialect("hal", [], [PlaceAttr, PlanAttr])
"""The dialect object."""
