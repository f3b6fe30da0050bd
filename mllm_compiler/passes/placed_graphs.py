"""Which graph the user places where: `GRAPH=TARGET`, `*` for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from mllm_compiler.dialects.types import ranked, shape_of
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.graphs import VARIANT, block_of, graphs, pipeline_of, source_name

WHERE: Final = "--place"

ALL: Final = "*"
"""Stands for every graph without a place of its own."""


def read_places(texts: Sequence[str]) -> dict[str, str]:
    """The targets of graphs from `graph=target`.

    Raises:
        CompileError: MLC-U007, a text is not like that, or a graph is named twice.
    """
    places: dict[str, str] = {}
    for text in texts:
        graph, _, name = text.partition("=")
        if not graph or not name or graph in places:
            message = f"'{text}' is not a graph and its one target"
            remedy = "write GRAPH=TARGET, each graph once"
            raise CompileError("MLC-U007", message, location=WHERE, remedy=remedy)
        places[graph] = name
    return places


def check_graphs(module: ModuleOp, places: Mapping[str, str]) -> None:
    """Refuses a graph that the model does not have.

    Raises:
        CompileError: MLC-U007, with the nearest one.
    """
    names = list(dict.fromkeys(source_name(graph) for graph in graphs(module)))
    for graph in places.keys() - {*names, ALL}:
        near = get_close_matches(graph, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"graphs: {', '.join(names)}"
        raise CompileError("MLC-U007", f"no graph '{graph}'", location=WHERE, remedy=hint)


def spelled_out(module: ModuleOp, places: Mapping[str, str]) -> dict[str, str]:
    """Places with `*` said of each graph that it means: those without a place of their own.

    A graph that appends to a cache is meant where its sizes have buckets; padded to its largest
    sizes, each token would cost as much as all.
    """
    given = dict(places)
    if (device := given.pop(ALL, None)) is None:
        return given
    pipeline = pipeline_of(module)
    padded = {bound.symbol.data for bound in pipeline.bounds if bound.buckets.data}
    cached = {cache.graph.data for cache in pipeline.caches}
    meant = dict.fromkeys(
        source_name(graph)
        for graph in graphs(module)
        if source_name(graph) not in cached or VARIANT in graph.attributes or padded & _sizes(graph)
    )
    return {**dict.fromkeys(meant, device), **given}


def _sizes(graph: FuncOp) -> set[str]:
    """The symbols of what a graph takes."""
    tensors = [value for value in block_of(graph).args if ranked(value) is not None]
    return {symbol for value in tensors for dim in shape_of(value) for symbol in dim.symbols()}
