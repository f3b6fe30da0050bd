"""What a target says of entries whose shapes vary, where padded graphs serve them."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp

from mllm_compiler.backends.artifact import Entry, Port
from mllm_compiler.dialects.dims import Atom, Dim, DimsAttr
from mllm_compiler.dialects.mllm import VariantAttr
from mllm_compiler.passes.graphs import DIMS, NAME, VARIANT, graphs, pipeline_of
from runtime_stub.buckets import LENGTH, Bucketed
from runtime_stub.buckets import Dim as Tree


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
            inputs=_trees(graph.arg_attrs),
            outputs=_trees(graph.res_attrs),
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
    found: dict[str, tuple[Dim, ...]] = {}
    for entry in attributes or ():
        name, dims = entry.data[NAME], entry.data[DIMS]
        assert isinstance(name, StringAttr)
        assert isinstance(dims, DimsAttr)
        if not name.data.startswith(LENGTH):
            found[name.data] = dims.data
    return found


def _trees(attributes: ArrayAttr[DictionaryAttr] | None) -> dict[str, list[Tree]]:
    return {name: [tree_of(d) for d in dims] for name, dims in _dims(attributes).items()}


def tree_of(dim: Dim) -> Tree:
    """A dim as a number, a symbol, or `[operation, dim, dim]`."""
    terms: list[Tree] = []
    for monomial, coefficient in dim.terms:
        factors: list[Tree] = [_atom(atom) for atom in monomial]
        if coefficient != 1 or not factors:
            factors.append(coefficient)
        terms.append(reduce(lambda a, b: ["mul", a, b], factors))
    return reduce(lambda a, b: cast("Tree", ["add", a, b]), terms) if terms else 0


def _atom(atom: Atom) -> Tree:
    if not atom.op:
        return atom.name
    assert atom.lhs is not None
    assert atom.rhs is not None
    return [atom.op, tree_of(atom.lhs), tree_of(atom.rhs)]
