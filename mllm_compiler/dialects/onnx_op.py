"""The base of every operator class of the `onnx` dialect: construction, access, syntax, checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Self, TypeVar

from xdsl.dialects.builtin import DenseArrayBase, DictionaryAttr, IntegerAttr, LocationAttr, i32
from xdsl.ir import Attribute, Operation, OpResult, Region, SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer

from mllm_compiler.dialects.onnx_attributes import Value, value_of
from mllm_compiler.dialects.onnx_schemas import Schema, schema_of
from mllm_compiler.dialects.onnx_verify import verify_against

OPSETS = "onnx.opset"
"""The function attribute that maps a domain to the opset version of the model."""

_OPERANDS, _RESULTS, _REGIONS = "operandSegmentSizes", "resultSegmentSizes", "regionSegmentSizes"
_RESERVED = (_OPERANDS, _RESULTS, _REGIONS)

_V = TypeVar("_V")


class OnnxOp(IRDLOperation):
    """An operator of the ONNX standard.

    Operands and results stand at the positions that the standard gives them; an absent optional
    one takes no operand, its segment is 0 and the custom form writes `_`.
    """

    DOMAIN: ClassVar[str]
    OPERATOR: ClassVar[str]
    STANDARD: ClassVar[str]
    """Its name in the `onnx` dialect: that of its schemas."""
    GRAPHS: ClassVar[tuple[str, ...]] = ()
    SEGMENTED: ClassVar[tuple[bool, bool, bool]] = (False, False, False)
    SLOTS: ClassVar[tuple[int, int, int]] = (0, 0, 0)
    ATTRIBUTES: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def make(
        cls,
        inputs: Sequence[SSAValue | None],
        result_types: Sequence[Attribute | None],
        attributes: Mapping[str, Attribute] | None = None,
        *,
        regions: Mapping[str, Region] | None = None,
        location: LocationAttr | None = None,
    ) -> Self:
        """Builds the operator; None stands for an absent input or output, regions have names."""
        graphs = [(regions or {}).get(name) for name in cls.GRAPHS]
        properties = dict(attributes or {})
        for name, flag, slots, given in zip(
            _RESERVED, cls.SEGMENTED, cls.SLOTS, (inputs, result_types, graphs), strict=True
        ):
            if flag:
                properties[name] = _segments(given, slots)
        return cls.create(
            operands=[v for v in inputs if v is not None],
            result_types=[t for t in result_types if t is not None],
            properties=properties,
            regions=[g for g in graphs if g is not None],
            location=location,
        )

    @property
    def inputs(self) -> tuple[SSAValue | None, ...]:
        """The operands at their positions in the standard; None where one is absent."""
        return _positioned(self.operands, self.properties.get(_OPERANDS))

    @property
    def outputs(self) -> tuple[OpResult | None, ...]:
        """The results at their positions in the standard; None where one is absent."""
        return _positioned(self.results, self.properties.get(_RESULTS))

    @property
    def graphs(self) -> dict[str, Region]:
        """The graph attributes that are there, by name."""
        placed = _positioned(self.regions, self.properties.get(_REGIONS))
        return {n: r for n, r in zip(self.GRAPHS, placed, strict=False) if r is not None}

    def input(self, position: int) -> SSAValue | None:
        """The operand at a position of the standard; None where it is absent."""
        inputs = self.inputs
        return inputs[position] if position < len(inputs) else None

    @property
    def opset(self) -> int | None:
        """The opset version that the enclosing function records for this operator's domain."""
        parent: Operation | None = self
        while (parent := parent.parent_op()) is not None:
            opsets = parent.attributes.get(OPSETS)
            if isinstance(opsets, DictionaryAttr):
                version = opsets.data.get(self.DOMAIN)
                return version.value.data if isinstance(version, IntegerAttr) else None
        return None

    @property
    def schema(self) -> Schema:
        """What the standard says of this operator in the model's opset."""
        found = schema_of(self.STANDARD, self.opset) or schema_of(self.STANDARD, None)
        assert found is not None
        return found

    def attribute(self, name: str) -> Value:
        """An attribute as a plain value; the schema's default where it is not given."""
        given = self.properties.get(name)
        if given is not None:
            return value_of(given)
        formal = self.schema.attributes.get(name)
        return formal.default if formal is not None else None  # pyright: ignore[reportReturnType]

    def verify_(self) -> None:
        """Checks the operator against its schema."""
        verify_against(self, schema_of(self.STANDARD, self.opset))

    def print(self, printer: Printer) -> None:
        """Writes `operands {attributes} name {region} : (types) -> (types)`."""
        inputs, outputs = self.inputs, self.outputs
        if inputs:
            printer.print_string(" ")
            printer.print_list(inputs, lambda v: _print(printer, v, printer.print_operand))
        shown = {k: v for k, v in self.properties.items() if k not in _RESERVED}
        printer.print_op_attributes(shown | self.attributes)
        for name, region in self.graphs.items():
            printer.print_string(f" {name} ")
            printer.print_region(region)
        printer.print_string(" : ")
        with printer.in_parens():
            printer.print_list(self.operand_types, printer.print_attribute)
        printer.print_string(" -> ")
        with printer.in_parens():
            printer.print_list(
                [None if v is None else v.type for v in outputs],
                lambda t: _print(printer, t, printer.print_attribute),
            )

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Reads what `print` writes."""
        operands = parser.parse_optional_undelimited_comma_separated_list(
            lambda: _blank(parser) or parser.parse_optional_unresolved_operand(),
            lambda: _blank(parser) or parser.parse_unresolved_operand(),
        )
        attributes = parser.parse_optional_attr_dict()
        regions: dict[str, Region] = {}
        for name in cls.GRAPHS:
            if parser.parse_optional_keyword(name):
                regions[name] = parser.parse_region()
        parser.parse_punctuation(":")
        types = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
        parser.parse_punctuation("->")
        result_types = parser.parse_comma_separated_list(
            parser.Delimiter.PAREN, lambda: _blank(parser) or parser.parse_type()
        )
        given = [o for o in operands or () if isinstance(o, UnresolvedOperand)]
        values = iter(parser.resolve_operands(given, types, parser.pos))
        op = cls.make(
            [next(values) if isinstance(o, UnresolvedOperand) else None for o in operands or ()],
            [t if isinstance(t, Attribute) else None for t in result_types],
            {k: v for k, v in attributes.items() if k in cls.ATTRIBUTES},
            regions=regions,
        )
        op.attributes |= {k: v for k, v in attributes.items() if k not in cls.ATTRIBUTES}
        return op


def _segments(given: Sequence[object], slots: int) -> DenseArrayBase:
    """The segment sizes: one a position; whatever follows the last position is variadic."""
    sizes = [0] * slots
    for at, value in enumerate(given):
        sizes[min(at, slots - 1)] += value is not None
    return DenseArrayBase.from_list(i32, sizes)


def _positioned(values: Sequence[_V], segments: Attribute | None) -> tuple[_V | None, ...]:
    if not isinstance(segments, DenseArrayBase):
        return tuple(values)
    placed: list[_V | None] = []
    rest = iter(values)
    for size in segments.get_values():
        placed.extend([next(rest) for _ in range(int(size))] if size else [None])
    while placed and placed[-1] is None:
        placed.pop()
    return tuple(placed)


def _print(printer: Printer, value: _V | None, write: Callable[[_V], object]) -> None:
    if value is None:
        printer.print_string("_")
        return
    write(value)


def _blank(parser: Parser) -> str | None:
    """The mark of an absent operand or result, where it comes next."""
    return parser.parse_optional_keyword("_")
