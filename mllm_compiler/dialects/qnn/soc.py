"""The chip that a graph is lowered for."""

from __future__ import annotations

from typing import Final, Self

from xdsl.dialects.builtin import IntAttr, StringAttr
from xdsl.ir import ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

SOC: Final = "qnn.soc"
"""The attribute of a graph that has it."""


@irdl_attr_definition
class SocAttr(ParametrizedAttribute):
    """A SoC, Qualcomm's number of it, the version of its HTP: `#qnn.soc<"sm8650", 57, 75>`."""

    name = "qnn.soc"
    soc: StringAttr
    model: IntAttr
    arch: IntAttr

    @classmethod
    def of(cls, soc: str, model: int, arch: int) -> Self:
        """Makes one."""
        return cls(StringAttr(soc), IntAttr(model), IntAttr(arch))

    def print_parameters(self, printer: Printer) -> None:
        """Writes `<"sm8650", 57, 75>`."""
        with printer.in_angle_brackets():
            printer.print_string_literal(self.soc.data)
            printer.print_string(f", {self.model.data}, {self.arch.data}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[StringAttr | IntAttr]:
        """Reads it."""
        with parser.in_angle_brackets():
            soc = StringAttr(parser.parse_str_literal())
            parser.parse_punctuation(",")
            model = IntAttr(parser.parse_integer())
            parser.parse_punctuation(",")
            return [soc, model, IntAttr(parser.parse_integer())]
