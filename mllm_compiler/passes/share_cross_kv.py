"""`share-cross-kv`: what an entry makes of another graph's features alone is made once; exact.

    @vision(pixels) -> features
    @decode(ids, features, past..) {
      %k = mllm.linear %features, %wk ..      %v = mllm.linear %features, %wv ..
      %y = mllm.cross_attn %q, %k, %v ..
->
    @vision(pixels) -> features, features.0, features.1 {
      %k = mllm.linear %features, %wk ..      %v = mllm.linear %features, %wv ..
    @decode(ids, features.0, features.1, past..) {
      %y = mllm.cross_attn %q, %features.0, %features.1 ..

The entries that `split-language-model` made run for every token, over the same features. What
depends on them and on weights alone, and has a product with a weight in it, becomes a result of the
graph that makes the features. An edge of the pipeline carries it to each entry that reads it: one
tensor, and no copy. The features are no input any more where nothing else reads them.

The graphs of the model's own files keep their inputs. What also depends on another input, or on a
symbol that only another input has, stays; so does what an entry returns, and what it makes of an
input that has a row for each token.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.traits import is_side_effect_free
from xdsl.transforms.common_subexpression_elimination import cse

from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import ConvOp, EdgeAttr, MatmulOp, PipelineOp, QuantizedLinearOp
from mllm_compiler.dialects.types import shape_of
from mllm_compiler.hal.cost import PRODUCTS
from mllm_compiler.passes.graphs import (
    SOURCE,
    add_argument,
    add_results,
    argument,
    argument_names,
    block_of,
    erase_arguments,
    graphs,
    located_clone,
    pipeline_of,
    remove_dead,
    result_names,
    return_of,
    users,
)
from mllm_compiler.passes.symbols import substitute_in, symbols_of

WORTH: tuple[type[Operation], ...] = (*PRODUCTS, QuantizedLinearOp, MatmulOp, ConvOp)
"""Ops that are worth moving where an operand depends on weights alone."""


@dataclass(frozen=True)
class Shared:
    """A value of an entry that another graph is to make.

    Attributes:
        edge: Gives the entry the features.
        entry: The entry.
        value: The value in it.
        copy: The same in the graph that makes the features.
    """

    edge: EdgeAttr
    entry: FuncOp
    value: SSAValue
    copy: SSAValue


@dataclass(frozen=True)
class ShareCrossKv(ModulePass):
    """Moves what entries make of features alone to the graph that makes the features."""

    name = "share-cross-kv"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Goes through the graphs whose results entries read."""
        pipeline, entries = pipeline_of(op), [g for g in graphs(op) if SOURCE in g.attributes]
        by_name = {entry.sym_name.data: entry for entry in entries}
        for maker in graphs(op):
            edges = [e for e in pipeline.edges if e.producer.data == maker.sym_name.data]
            pairs = [(e, by_name[e.consumer.data]) for e in edges if e.consumer.data in by_name]
            steady = _steady(pairs)
            found = [one for edge, entry in steady for one in _copied(edge, entry, maker)]
            if found:
                _share(pipeline, maker, found)


def _steady(pairs: Sequence[tuple[EdgeAttr, FuncOp]]) -> Iterator[tuple[EdgeAttr, FuncOp]]:
    """The inputs that are of one type in all entries of a model: what follows its tokens is not."""
    kinds = dict[tuple[StringAttr, Attribute], set[Attribute]]()
    for edge, entry in pairs:
        value, model = argument(entry, edge.input.data), entry.attributes[SOURCE]
        kinds.setdefault((edge.output, model), set()).update([] if value is None else [value.type])
    for edge, entry in pairs:
        if len(kinds[edge.output, entry.attributes[SOURCE]]) == 1:
            yield edge, entry


def _copied(edge: EdgeAttr, entry: FuncOp, maker: FuncOp) -> list[Shared]:
    """Copies what an entry makes of features alone behind the graph that makes them."""
    features = argument(entry, edge.input.data)
    made = return_of(maker).operands[result_names(maker).index(edge.output.data)]
    symbols = None if features is None else _matched(shape_of(features), shape_of(made))
    if features is None or symbols is None:
        return []
    values = list(_wanted(entry, features, symbols))
    copies = {features: made}
    for op in _needed(entry, features, values):
        copy = located_clone(op, copies)
        block_of(maker).insert_op_before(copy, return_of(maker))
        substitute_in(copy, symbols)
        copies |= zip(op.results, copy.results, strict=True)
    return [Shared(edge, entry, value, copies[value]) for value in values]


def _matched(taken: Sequence[Dim], made: Sequence[Dim]) -> dict[str, Dim] | None:
    """What the symbols of an argument are in the graph whose result it is; None: unknown."""
    if len(taken) != len(made) or any(dim.unknown for dim in (*taken, *made)):
        return None
    found: dict[str, Dim] = {}
    for mine, theirs in zip(taken, made, strict=True):
        symbol = mine.as_symbol()
        if symbol is None and mine != theirs:
            return None
        means = {s: Dim.symbol(s) for s in mine.symbols()} if symbol is None else {symbol: theirs}
        if any(found.setdefault(s, dim) != dim for s, dim in means.items()):
            return None
    return found


def _wanted(entry: FuncOp, features: SSAValue, symbols: Collection[str]) -> Iterator[SSAValue]:
    """The values that depend on features alone, are worth moving, and are read by what does not."""
    fixed, worth = set[SSAValue](), {features: False}
    for op in block_of(entry).ops:
        moves = op.results and not op.regions and is_side_effect_free(op)
        if not moves or not symbols_of(op) <= set(symbols):
            continue
        if all(v in fixed for v in op.operands):
            fixed.update(op.results)
        elif all(v in fixed or v in worth for v in op.operands):
            product = isinstance(op, WORTH) and any(v in fixed for v in op.operands)
            paid = product or any(worth.get(v) for v in op.operands)
            worth.update(dict.fromkeys(op.results, paid))
    for value, paid in worth.items():
        readers = [op for op in users(value) if not worth.keys() & set(op.results)]
        if paid and readers and not any(isinstance(op, ReturnOp) for op in readers):
            yield value


def _needed(entry: FuncOp, features: SSAValue, values: Sequence[SSAValue]) -> list[Operation]:
    """The ops that make values of features, in order."""
    found, left = set[Operation](), list(values)
    while left:
        owner = left.pop().owner
        if isinstance(owner, Operation) and owner not in found:
            found.add(owner)
            left += owner.operands
    return [op for op in block_of(entry).ops if op in found]


def _share(pipeline: PipelineOp, maker: FuncOp, shared: Sequence[Shared]) -> None:
    """Returns what was copied, each value once, and gives it to the entries."""
    copies = _merged(maker, [one.copy for one in shared])
    outputs = dict(zip(return_of(maker).operands, result_names(maker), strict=True))
    used = {*outputs.values(), *(n for one in shared for n in argument_names(one.entry))}
    inputs, edges = dict[SSAValue, str](), dict.fromkeys(pipeline.edges)
    for one, copy in zip(shared, copies, strict=True):
        if copy not in inputs:
            stem = one.edge.output.data
            inputs[copy] = next(n for i in count() if (n := f"{stem}.{i}") not in used)
            used.add(inputs[copy])
        taken = argument(one.entry, inputs[copy])
        if taken is None:
            taken = add_argument(one.entry, inputs[copy], one.value.type)
        one.value.replace_all_uses_with(taken)
        ends = (one.edge.consumer.data, inputs[copy], maker.sym_name.data)
        edges[EdgeAttr.of(*ends, outputs.get(copy, inputs[copy]))] = None
    add_results(maker, {name: v for v, name in inputs.items() if v not in outputs})
    for edge, entry in {one.edge: one.entry for one in shared}.items():
        remove_dead(entry)
        if _forget(entry, edge.input.data):
            del edges[edge]
    pipeline.properties["edges"] = ArrayAttr(edges)


def _merged(maker: FuncOp, values: Sequence[SSAValue]) -> Sequence[SSAValue]:
    """The values, those that are computed twice once; a return keeps track of them."""
    end = return_of(maker)
    own = len(end.operands)
    end.operands = [*end.operands, *values]
    cse(maker)
    merged = tuple(end.operands)
    end.operands = merged[:own]
    return merged[own:]


def _forget(entry: FuncOp, name: str) -> bool:
    """Takes an input away, where nothing reads it or needs its symbols; whether it did."""
    value = argument(entry, name)
    if value is None or value.first_use is not None:
        return False
    others = [shape_of(v) for v in block_of(entry).args if v is not value]
    bound = {dim.as_symbol() for dims in others for dim in dims}
    if not {s for dim in shape_of(value) for s in dim.symbols()} <= bound:
        return False
    erase_arguments(entry, {name})
    return True
