"""What a target says of entries whose shapes vary, where padded graphs serve them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp
from xdsl.dialects.func import FuncOp

from mllm_compiler.backends.artifact import Entry, Port
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import VariantAttr
from mllm_compiler.passes.bucket_shapes.padded import LENGTH
from mllm_compiler.passes.graphs import VARIANT, graphs, pipeline_of, real_dims

Dims = Mapping[str, tuple[Dim, ...]]
"""The dims of tensors by name, as they are without padding."""


@dataclass(frozen=True)
class Bucketed:
    """An entry whose shapes vary, and the graphs of static shapes that serve it.

    Attributes:
        entry: Its name.
        inputs: The dims of what it takes.
        outputs: The dims of what it gives.
        least: The least value of each symbol.
        left: The symbols whose padding stands before the real elements.
        variants: The sizes of each graph.
    """

    entry: str
    inputs: Dims
    outputs: Dims
    least: Mapping[str, int]
    left: Sequence[str]
    variants: Mapping[str, Mapping[str, int]]


def bucketed_of(module: ModuleOp) -> dict[str, Bucketed]:
    """The entries that padded graphs of a module serve, by name."""
    least, found = pipeline_of(module).least_of, dict[str, Bucketed]()
    for graph in graphs(module):
        variant = variant_of(graph)
        if variant is None:
            continue
        entry = variant.entry.data
        made = found.get(entry) or Bucketed(
            entry=entry,
            inputs=_dims(graph.arg_attrs),
            outputs=_dims(graph.res_attrs),
            least={symbol: least.get(symbol, 0) for symbol in variant.size_of},
            left=sorted(variant.left_symbols),
            variants={},
        )
        variants = {**made.variants, graph.sym_name.data: variant.size_of}
        found[entry] = replace(made, variants=variants)
    return found


def variant_of(graph: FuncOp) -> VariantAttr | None:
    """What a padded graph serves."""
    variant = graph.attributes.get(VARIANT)
    return variant if isinstance(variant, VariantAttr) else None


def served_entry(entry: Entry, graph: FuncOp) -> Entry:
    """The entry as its users see it: under the name that a padded graph serves, without padding."""
    variant = variant_of(graph)
    if variant is None:
        return entry
    inputs = tuple(p for p in entry.inputs if not p.name.startswith(LENGTH))
    return replace(
        entry,
        name=variant.entry.data,
        inputs=_real(inputs, graph.arg_attrs),
        outputs=_real(entry.outputs, graph.res_attrs),
    )


def _real(
    ports: tuple[Port, ...], attributes: ArrayAttr[DictionaryAttr] | None
) -> tuple[Port, ...]:
    dims = _dims(attributes)
    return tuple(replace(p, shape=tuple(str(d) for d in dims[p.name])) for p in ports)


def _dims(attributes: ArrayAttr[DictionaryAttr] | None) -> dict[str, tuple[Dim, ...]]:
    """The dims of arguments or results before they were padded, without the lengths."""
    dims = real_dims(attributes)
    return {name: dims[name] for name in dims if not name.startswith(LENGTH)}
