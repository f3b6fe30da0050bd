"""The op of the `mllm` dialect that ties the graphs of a model together."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, IntAttr, StringAttr, SymbolNameConstraint
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_attr_definition,
    irdl_op_definition,
    opt_prop_def,
    param_def,
    prop_def,
    traits_def,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from mllm_compiler.dialects.mllm.banks import BankAttr
from mllm_compiler.dialects.mllm.bounds import BoundAttr
from mllm_compiler.dialects.mllm.contract import check


@irdl_attr_definition
class EdgeAttr(ParametrizedAttribute):
    """An input that is another graph's output: `#mllm.edge<"b" "x" from "a" "y">`."""

    name = "mllm.edge"

    consumer: StringAttr = param_def()
    input: StringAttr = param_def()
    producer: StringAttr = param_def()
    output: StringAttr = param_def()

    @classmethod
    def of(cls, consumer: str, input: str, producer: str, output: str) -> EdgeAttr:
        """The edge from an output of the producer to an input of the consumer."""
        return cls(*(StringAttr(s) for s in (consumer, input, producer, output)))

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        """Reads consumer, input, `from`, producer and output between angle brackets."""
        with parser.in_angle_brackets():
            consumer, input = parser.parse_str_literal(), parser.parse_str_literal()
            parser.parse_keyword("from")
            producer, output = parser.parse_str_literal(), parser.parse_str_literal()
        return [StringAttr(s) for s in (consumer, input, producer, output)]

    def print_parameters(self, printer: Printer) -> None:
        """Writes what `parse_parameters` reads."""
        with printer.in_angle_brackets():
            printer.print_string_literal(self.consumer.data)
            printer.print_string(" ")
            printer.print_string_literal(self.input.data)
            printer.print_string(" from ")
            printer.print_string_literal(self.producer.data)
            printer.print_string(" ")
            printer.print_string_literal(self.output.data)


@irdl_attr_definition
class CacheAttr(ParametrizedAttribute):
    """The cache of a graph, by the names of its arguments and results.

    `#mllm.cache<"decoder", key "past_key_values.{layer}.key", value
    "past_key_values.{layer}.value", out "present.{layer}.{kind}", layers 30>`; the names have
    `{layer}`, and `{kind}` of out is `key` or `value`.
    """

    name = "mllm.cache"

    graph: StringAttr = param_def()
    key: StringAttr = param_def()
    value: StringAttr = param_def()
    out: StringAttr = param_def()
    layers: IntAttr = param_def()

    @classmethod
    def of(cls, graph: str, key: str, value: str, out: str, layers: int) -> CacheAttr:
        """The cache of a graph."""
        names = [StringAttr(s) for s in (graph, key, value, out)]
        return cls(names[0], names[1], names[2], names[3], IntAttr(layers))

    def key_name(self, layer: int) -> str:
        """The argument that holds the keys of a layer."""
        return self.key.data.replace("{layer}", str(layer))

    def value_name(self, layer: int) -> str:
        """The argument that holds the values of a layer."""
        return self.value.data.replace("{layer}", str(layer))

    def out_name(self, layer: int, kind: str) -> str:
        """The result that holds the keys (`kind` is "key") or values ("value") of a layer."""
        return self.out.data.replace("{layer}", str(layer)).replace("{kind}", kind)

    def verify(self) -> None:
        """Each name has `{layer}`, and there is a layer."""
        if not all("{layer}" in s.data for s in (self.key, self.value, self.out)):
            raise VerifyException("'mllm.cache': key, value and out must contain {layer}")
        if self.layers.data < 1:
            raise VerifyException("'mllm.cache': there must be a layer")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        """Reads graph, names and layers between angle brackets."""
        with parser.in_angle_brackets():
            names = [parser.parse_str_literal()]
            for word in ("key", "value", "out"):
                parser.parse_punctuation(",")
                parser.parse_keyword(word)
                names.append(parser.parse_str_literal())
            parser.parse_punctuation(",")
            parser.parse_keyword("layers")
            layers = parser.parse_integer()
        return [*(StringAttr(s) for s in names), IntAttr(layers)]

    def print_parameters(self, printer: Printer) -> None:
        """Writes what `parse_parameters` reads."""
        with printer.in_angle_brackets():
            printer.print_string_literal(self.graph.data)
            for word, name in (("key", self.key), ("value", self.value), ("out", self.out)):
                printer.print_string(f", {word} ")
                printer.print_string_literal(name.data)
            printer.print_string(f", layers {self.layers.data}")


@irdl_op_definition
class PipelineOp(IRDLOperation):
    """Ties the graphs (functions) of a module together; a module has at most one.

    edges say which input is which output, so that the tensor is one buffer with as many readers as
    there are edges from it; caches say which arguments and results are a cache; bounds give the
    range of each symbolic dim. overlaps are graphs of which one may run beside another, by the
    names that the model gives them; without one, graphs run one after another. banks are the
    memories that a plan may use, in the order in which they are filled.

    C1  no input has two producers.
    C2  no symbol has two bounds.
    C3  no graph has two caches of one name.
    C4  an overlap names two graphs or more, none of them twice.
    C5  no two banks have one name.
    """

    name = "mllm.pipeline"

    sym_name = prop_def(SymbolNameConstraint())
    edges = prop_def(ArrayAttr[EdgeAttr])
    caches = prop_def(ArrayAttr[CacheAttr])
    bounds = prop_def(ArrayAttr[BoundAttr])
    overlaps = opt_prop_def(ArrayAttr[ArrayAttr[StringAttr]])
    banks = opt_prop_def(ArrayAttr[BankAttr])

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(SymbolOpInterface())
    assembly_format = "$sym_name attr-dict"

    def __init__(
        self,
        name: str,
        *,
        edges: Sequence[EdgeAttr] = (),
        caches: Sequence[CacheAttr] = (),
        bounds: Sequence[BoundAttr] = (),
        overlaps: Sequence[Sequence[str]] = (),
        banks: Sequence[BankAttr] = (),
    ) -> None:
        together = ArrayAttr(ArrayAttr(StringAttr(s) for s in names) for names in overlaps)
        super().__init__(
            properties={
                "sym_name": StringAttr(name),
                "edges": ArrayAttr(edges),
                "caches": ArrayAttr(caches),
                "bounds": ArrayAttr(bounds),
                "overlaps": together if overlaps else None,
                "banks": ArrayAttr(banks) if banks else None,
            }
        )

    @property
    def bound_of(self) -> dict[str, int]:
        """The largest value of each symbol."""
        return {b.symbol.data: b.max.data for b in self.bounds}

    @property
    def least_of(self) -> dict[str, int]:
        """The least value of each symbol."""
        return {b.symbol.data: b.min.data for b in self.bounds}

    @property
    def together(self) -> list[list[str]]:
        """The graphs of each overlap."""
        return [[name.data for name in names] for names in self.overlaps or ()]

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        inputs = [(e.consumer.data, e.input.data) for e in self.edges]
        check(self, 1, len(set(inputs)) == len(inputs), "an input has two producers")
        symbols = [b.symbol.data for b in self.bounds]
        check(self, 2, len(set(symbols)) == len(symbols), "a symbol has two bounds")
        caches = [(c.graph.data, c.key.data) for c in self.caches]
        check(self, 3, len(set(caches)) == len(caches), "a graph has two caches of one name")
        apart = all(len(names) == len(set(names)) > 1 for names in self.together)
        check(self, 4, apart, "an overlap has one graph, or one twice")
        banks = [b.bank.data for b in self.banks or ()]
        check(self, 5, len(set(banks)) == len(banks), "two banks have one name")
