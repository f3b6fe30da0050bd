"""What the `mllm` dialect says of symbols: bounds, and the sizes that a graph was padded to."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from xdsl.dialects.builtin import ArrayAttr, IntAttr, StringAttr
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException


def default_bound(symbol: str) -> int:
    """The largest value of a symbol that has no bound: 1 for a batch, 2048 for anything else."""
    return 1 if "batch" in symbol else 2048


@irdl_attr_definition
class BoundAttr(ParametrizedAttribute):
    """The range of a symbol: `#mllm.bound<"past" <= 2048>`, `#mllm.bound<1 <= "tokens" <= 256>`.

    `#mllm.bound<"tokens" <= 256 in [1, 16, 256]>` asks for a graph of static shapes for each of the
    sizes; they are ascending, and the last is the largest value.
    """

    name = "mllm.bound"

    symbol: StringAttr = param_def()
    max: IntAttr = param_def()
    min: IntAttr = param_def()
    buckets: ArrayAttr[IntAttr] = param_def()

    @classmethod
    def of(
        cls, symbol: str, largest: int, *, least: int = 0, buckets: Sequence[int] = ()
    ) -> BoundAttr:
        """The bound of a symbol."""
        sizes = ArrayAttr(IntAttr(n) for n in buckets)
        return cls(StringAttr(symbol), IntAttr(largest), IntAttr(least), sizes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The buckets; a symbol without them has one, its largest value."""
        return tuple(n.data for n in self.buckets) or (self.max.data,)

    def verify(self) -> None:
        """A bound is not negative, a range not empty, and buckets end at the bound."""
        least, largest, sizes = self.min.data, self.max.data, self.sizes
        if not 0 <= least <= largest:
            raise VerifyException(f"'mllm.bound': {least} <= {self.symbol.data} <= {largest}")
        if list(sizes) != sorted({*sizes, largest}) or (self.buckets.data and sizes[0] < 1):
            raise VerifyException(f"'mllm.bound': {self.symbol.data} <= {largest} in {list(sizes)}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        """Reads range and buckets between angle brackets."""
        buckets: list[int] = []
        with parser.in_angle_brackets():
            least = parser.parse_optional_integer(allow_boolean=False)
            if least is not None:
                _at_most(parser)
            symbol = parser.parse_str_literal()
            _at_most(parser)
            largest = parser.parse_integer()
            if parser.parse_optional_keyword("in"):
                buckets = parser.parse_comma_separated_list(
                    parser.Delimiter.SQUARE, parser.parse_integer
                )
        sizes = ArrayAttr(IntAttr(n) for n in buckets)
        return [StringAttr(symbol), IntAttr(largest), IntAttr(least or 0), sizes]

    def print_parameters(self, printer: Printer) -> None:
        """Writes what `parse_parameters` reads."""
        with printer.in_angle_brackets():
            if self.min.data:
                printer.print_string(f"{self.min.data} <= ")
            printer.print_string_literal(self.symbol.data)
            printer.print_string(f" <= {self.max.data}")
            if self.buckets.data:
                printer.print_string(f" in {[n.data for n in self.buckets]}")


def _at_most(parser: AttrParser) -> None:
    parser.parse_punctuation("<")
    parser.parse_punctuation("=")


@irdl_attr_definition
class VariantAttr(ParametrizedAttribute):
    """The sizes that a graph was padded to: `#mllm.variant<"decoder", "past" = 8 left, "seq" = 4>`.

    The graph serves the entry of that name for values of the symbols up to the sizes. Padding
    stands behind the real elements of an axis, of a symbol with `left` before them.
    """

    name = "mllm.variant"

    entry: StringAttr = param_def()
    symbols: ArrayAttr[StringAttr] = param_def()
    sizes: ArrayAttr[IntAttr] = param_def()
    left: ArrayAttr[StringAttr] = param_def()

    @classmethod
    def of(cls, entry: str, sizes: Mapping[str, int], left: Collection[str]) -> VariantAttr:
        """The sizes of the symbols of an entry."""
        return cls(
            StringAttr(entry),
            ArrayAttr(StringAttr(s) for s in sizes),
            ArrayAttr(IntAttr(n) for n in sizes.values()),
            ArrayAttr(StringAttr(s) for s in sizes if s in left),
        )

    @property
    def size_of(self) -> dict[str, int]:
        """The size of each symbol."""
        pairs = zip(self.symbols, self.sizes, strict=True)
        return {symbol.data: size.data for symbol, size in pairs}

    @property
    def left_symbols(self) -> frozenset[str]:
        """The symbols whose padding stands before the real elements."""
        return frozenset(symbol.data for symbol in self.left)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        """Reads entry and sizes between angle brackets."""
        sizes: dict[str, int] = {}
        left: list[str] = []
        with parser.in_angle_brackets():
            entry = parser.parse_str_literal()
            while parser.parse_optional_punctuation(","):
                symbol = parser.parse_str_literal()
                parser.parse_punctuation("=")
                sizes[symbol] = parser.parse_integer()
                left += [symbol] if parser.parse_optional_keyword("left") else []
        return list(cls.of(entry, sizes, left).parameters)

    def print_parameters(self, printer: Printer) -> None:
        """Writes what `parse_parameters` reads."""
        with printer.in_angle_brackets():
            printer.print_string_literal(self.entry.data)
            for symbol, size in self.size_of.items():
                printer.print_string(", ")
                printer.print_string_literal(symbol)
                printer.print_string(f" = {size}{' left' * (symbol in self.left_symbols)}")
