"""What the `mllm` dialect says of memory: the banks that a plan may use."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IntAttr, StringAttr
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

NO_END = -1
"""The capacity of a bank that has no end."""


@irdl_attr_definition
class BankAttr(ParametrizedAttribute):
    """A memory that tensors may lie in: its bytes, and what it asks of them.

    `#mllm.bank<"npu", bytes 8388608, alignment 262144 from 1048576, least 262144, contiguous>`: a
    tensor of 1,048,576 bytes and more starts at a multiple of 262,144 and shares no such piece, one
    below 262,144 bytes does not lie there, and devices reach it in one piece. All but the alignment
    may be left out.
    """

    name = "mllm.bank"

    bank: StringAttr = param_def()
    capacity: IntAttr = param_def()
    alignment: IntAttr = param_def()
    large: IntAttr = param_def()
    least: IntAttr = param_def()
    contiguous: IntAttr = param_def()

    @classmethod
    def of(
        cls,
        bank: str,
        capacity: int | None,
        alignment: int,
        large: int,
        *,
        least: int = 0,
        contiguous: bool = False,
    ) -> BankAttr:
        """The bank of a name."""
        numbers = (NO_END if capacity is None else capacity, alignment, large, least, contiguous)
        return cls(StringAttr(bank), *(IntAttr(int(n)) for n in numbers))

    @property
    def end(self) -> int | None:
        """Its bytes; None: it has no end."""
        return None if self.capacity.data == NO_END else self.capacity.data

    def verify(self) -> None:
        """Sizes are not negative, and the alignment is positive."""
        small = min(self.capacity.data + 1, self.large.data, self.least.data)
        if self.alignment.data < 1 or small < 0:
            raise VerifyException(f"'mllm.bank': a size of {self.bank.data} is negative")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        """Reads name and sizes between angle brackets."""
        capacity, least, contiguous = NO_END, 0, False
        with parser.in_angle_brackets():
            bank = parser.parse_str_literal()
            parser.parse_punctuation(",")
            if parser.parse_optional_keyword("bytes"):
                capacity = parser.parse_integer()
                parser.parse_punctuation(",")
            parser.parse_keyword("alignment")
            alignment = parser.parse_integer()
            parser.parse_keyword("from")
            large = parser.parse_integer()
            while parser.parse_optional_punctuation(","):
                if parser.parse_optional_keyword("least"):
                    least = parser.parse_integer()
                else:
                    parser.parse_keyword("contiguous")
                    contiguous = True
        numbers = (capacity, alignment, large, least, int(contiguous))
        return [StringAttr(bank), *(IntAttr(n) for n in numbers)]

    def print_parameters(self, printer: Printer) -> None:
        """Writes what `parse_parameters` reads."""
        with printer.in_angle_brackets():
            printer.print_string_literal(self.bank.data)
            if self.end is not None:
                printer.print_string(f", bytes {self.end}")
            printer.print_string(f", alignment {self.alignment.data} from {self.large.data}")
            if self.least.data:
                printer.print_string(f", least {self.least.data}")
            if self.contiguous.data:
                printer.print_string(", contiguous")
