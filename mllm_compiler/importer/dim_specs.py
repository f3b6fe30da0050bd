"""What a user says of symbolic dimensions, in `[dims]` of a model.toml or as `--dim`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from xdsl.dialects.builtin import StringAttr, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute
from xdsl.utils.hints import isa

from mllm_compiler.dialects.dims import dims_of
from mllm_compiler.dialects.mllm import BoundAttr, default_bound
from mllm_compiler.errors import CompileError

OPTION: Final = "--dim"
LARGEST: Final = (1 << 31) - 1
"""The largest size that a dimension may have."""


@dataclass(frozen=True, kw_only=True)
class DimSpec:
    """The range of a symbolic dimension.

    Attributes:
        max: The largest value; without one the largest bucket, else 1 for a batch and 2048 for
            anything else.
        min: The least value; where it is `max`, the dimension is fixed and its symbol goes.
        buckets: Sizes for which graphs of static shapes are made; `max` is one of them.
    """

    max: int | None = None
    min: int = 0
    buckets: tuple[int, ...] = ()

    def bound(self, symbol: str) -> BoundAttr:
        """The bound of the symbol that this says."""
        largest = self.max
        if largest is None:
            largest = self.buckets[-1] if self.buckets else max(default_bound(symbol), self.min)
        sizes = sorted({*self.buckets, largest}) if self.buckets else ()
        return BoundAttr.of(symbol, largest, least=self.min, buckets=sizes)

    def fault(self) -> str | None:
        """What is wrong with it, as a message."""
        most = LARGEST if self.max is None else self.max
        if not 0 <= self.min <= most <= LARGEST:
            return f"no size is from {self.min} to {most}"
        if list(self.buckets) != sorted(set(self.buckets)):
            return f"the buckets {list(self.buckets)} do not ascend"
        if self.buckets and not 1 <= self.buckets[0] <= self.buckets[-1] <= most:
            return f"the buckets {list(self.buckets)} are not from 1 to {most}"
        return None


TOKENS: Final = ("input_ids", "inputs_embeds")
"""The inputs of a language model whose tokens it goes on from."""

SPELLINGS: Final = "NAME=8, 'NAME<=8', '1<=NAME<=8' or NAME=1,4,8"

_RANGE = re.compile(r"(?:(?P<min>\d+) *<= *)?(?P<name>[^\s<>=,]+) *<= *(?P<max>\d+)")
_SIZES = re.compile(r"(?P<name>[^\s<>=,]+) *= *(?P<sizes>\d+(?: *, *\d+)*)")


def read_dims(texts: Iterable[str]) -> dict[str, DimSpec]:
    """The dimensions of some `--dim` options: a fixed size, a range, or buckets.

    Raises:
        CompileError: MLC-U015, one is none of these.
    """
    dims: dict[str, DimSpec] = {}
    for text in texts:
        name, spec = _read_dim(text.strip())
        fault = "is given twice" if name in dims else spec.fault()
        if fault is not None:
            raise CompileError(
                "MLC-U015", fault, location=f"{OPTION} {name}", remedy=f"write {SPELLINGS}"
            )
        dims[name] = spec
    return dims


def _read_dim(text: str) -> tuple[str, DimSpec]:
    ranged, sized = _RANGE.fullmatch(text), _SIZES.fullmatch(text)
    if ranged is not None:
        return ranged["name"], DimSpec(min=int(ranged["min"] or 0), max=int(ranged["max"]))
    if sized is None:
        message = f"'{text[:80]}' sets no dimension"
        raise CompileError("MLC-U015", message, location=OPTION, remedy=f"write {SPELLINGS}")
    sizes = tuple(int(n) for n in sized["sizes"].split(","))
    if len(sizes) == 1:
        return sized["name"], DimSpec(min=sizes[0], max=sizes[0])
    return sized["name"], DimSpec(max=sizes[-1], buckets=sizes)


def bounds_of(
    source: str,
    written: Mapping[str, DimSpec],
    given: Mapping[str, DimSpec],
    functions: Iterable[FuncOp],
) -> list[BoundAttr]:
    """The bound of every symbol of an input.

    Args:
        source: The file that `written` stands in.
        written: The dimensions of a model.toml.
        given: Those of the command line, which go before.
        functions: The graphs.

    Raises:
        CompileError: MLC-I023 or MLC-U015, no input has a symbol of the name, or it leaves a model
            no tokens.
    """
    graphs = list(functions)
    inputs = (type for graph in graphs for type in graph.function_type.inputs)
    symbols = list(dict.fromkeys(s for type in inputs for s in sorted(_symbols(type))))
    for name in written:
        _check_name(name, symbols, "MLC-I023", f"{source}: dims.{name}")
    for name in given:
        _check_name(name, symbols, "MLC-U015", f"{OPTION} {name}")
    specs = {**written, **given}
    for name in [name for name, spec in given.items() if spec.max == 0]:
        _check_tokens(name, graphs)
    return [specs.get(s, DimSpec()).bound(s) for s in dict.fromkeys([*specs, *symbols])]


def _check_name(name: str, symbols: list[str], code: str, at: str) -> None:
    if name in symbols:
        return
    near = get_close_matches(name, symbols, n=1, cutoff=0.0)
    remedy = f"did you mean '{near[0]}'?" if near else "all inputs have static shapes"
    raise CompileError(code, f"no input has a dimension '{name}'", location=at, remedy=remedy)


def _check_tokens(name: str, graphs: Iterable[FuncOp]) -> None:
    """Refuses a dimension of no elements where tokens go in."""
    for graph in graphs:
        types = graph.function_type.inputs.data
        for port, type in zip(graph.arg_attrs or (), types, strict=True):
            word = port.data.get("mllm.name")
            if isinstance(word, StringAttr) and word.data in TOKENS and name in _symbols(type):
                message = f"at size 0, '{word.data}' of '{graph.sym_name.data}' has no tokens"
                at, remedy = f"{OPTION} {name}", "give a size from 1 on"
                raise CompileError("MLC-U015", message, location=at, remedy=remedy)


def _symbols(type: Attribute) -> set[str]:
    if not isa(type, TensorType[Attribute]):
        return set()
    return {symbol for dim in dims_of(type) for symbol in dim.symbols()}
