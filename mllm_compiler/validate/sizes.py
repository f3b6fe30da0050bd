"""Sizes for the symbols of a graph: small, one, long, with and without a past."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from xdsl.dialects.func import FuncOp

from mllm_compiler.dialects.dims import Dim, dims_of
from mllm_compiler.dialects.mllm import PipelineOp
from mllm_compiler.dialects.types import ranked, tensor_type
from mllm_compiler.passes.graphs import symbol_bound
from mllm_compiler.passes.infer_shapes import infer_function

SMALL = (3, 4, 5)
"""Sizes that symbols get in turn, where their bounds allow."""

LONG = 48
"""The size that stands for the largest one, where the bound is beyond it: a run takes moments."""

EMPTY_PAST = "empty past"

Sizes = dict[str, int]


def sizes_of(graph: FuncOp, pipeline: PipelineOp) -> dict[str, Sizes]:
    """The sizes to try, by name; each name has its own, the first are small."""
    kinds = [tensor_type(argument) for argument in graph.args]
    symbols = {s for kind in kinds for dim in dims_of(kind) for s in dim.symbols()}
    bounds, least = pipeline.bound_of, pipeline.least_of
    small = symbol_sizes(symbols, bounds, least)
    tried = {
        "ordinary": small,
        "length 1": symbol_sizes(symbols, bounds, least, wanted=(1,)),
        "longest": symbol_sizes(symbols, bounds, least, wanted=(LONG,)),
        EMPTY_PAST: summed(small | {s: least.get(s, 0) for s in small if "past" in s}),
    }
    dims, found = inferred_dims(graph), dict[str, Sizes]()
    for name, sizes in tried.items():
        filled = filling_sizes(dims, sizes, bounds)
        if filled not in found.values():
            found[name] = filled
    return found


def symbol_sizes(
    symbols: Iterable[str],
    bounds: Mapping[str, int],
    least: Mapping[str, int],
    *,
    wanted: Sequence[int] = SMALL,
) -> Sizes:
    """A size in the range of each symbol; `total_x` is `past_x` and `x` together."""
    sizes = {
        symbol: max(
            min(symbol_bound(symbol, dict(bounds)), wanted[index % len(wanted)]),
            least.get(symbol, 0),
        )
        for index, symbol in enumerate(sorted(symbols))
    }
    return summed(sizes)


def summed(sizes: Sizes) -> Sizes:
    """The sizes, each total made the sum of its parts."""
    totals = {
        f"total_{stem}": sizes[stem] + sizes[f"past_{stem}"]
        for stem in sizes
        if {f"total_{stem}", f"past_{stem}"} <= sizes.keys()
    }
    return sizes | totals


def inferred_dims(graph: FuncOp) -> set[Dim]:
    """The dims of all values of a graph that depend on symbols."""
    inferred = graph.clone()
    infer_function(inferred)
    values = [r for op in inferred.walk() for r in op.results]
    kinds = [kind for v in values if (kind := ranked(v)) is not None]
    return {d for kind in kinds for d in dims_of(kind) if not d.unknown and d.symbols()}


def filling_sizes(
    dims: Iterable[Dim], sizes: Mapping[str, int], bounds: Mapping[str, int]
) -> Sizes:
    """The sizes, grown within their bounds until no dim is 0.

    A sound must be longer than the windows that slide over it.
    """
    grown = dict(sizes)
    known = {d for d in dims if d.symbols() <= grown.keys()}
    while empty := {s for d in known if d.evaluate(grown) < 1 for s in d.symbols()}:
        larger = {s: min(2 * grown[s], symbol_bound(s, dict(bounds))) for s in empty}
        if larger.items() <= grown.items():
            break
        grown |= larger
    return grown
