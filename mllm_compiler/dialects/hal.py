"""The hal dialect: where an op runs, as an attribute."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import StringAttr
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


Hal = Dialect("hal", [], [PlaceAttr])
"""The dialect object."""
