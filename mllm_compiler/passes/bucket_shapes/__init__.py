"""`bucket-shapes`: a graph of static shapes for each size that its inputs are padded to; exact.

    func.func @encoder(%x: tensor<?x?x8xf32, #mllm.dims<"batch", "tokens", "8">>)
      %y = mllm.attention %x, %x, %x
    mllm.pipeline {bounds = [#mllm.bound<"batch" <= 1>, #mllm.bound<"tokens" <= 64 in [16, 64]>]}
->
    func.func @encoder_16(%x: tensor<1x16x8xf32> {mllm.dims = #mllm.dims<"batch", "tokens", "8">},
                          %n: tensor<1xi64> {mllm.name = "length.tokens"})
      attributes {mllm.variant = #mllm.variant<"encoder", "batch" = 1, "tokens" = 16>}
      %i = mllm.iota : tensor<16xi64>
      %m = mllm.compare lt %i, %n
      %y = mllm.attention %x, %x, %x key_mask(%m)
    func.func @encoder_64 ..

A graph has a variant for each choice of its symbols' buckets; a symbol without buckets has one, its
largest value. Weights are shared by digest. Inputs are padded with zeros to the sizes, and
`length.tokens` says how many elements are real; results hold the real ones at the same place.
Padding is kept out: of attention by a mask of keys, of sums, maxima and softmax by an element that
is neutral, of convolutions by zeros. Past tokens are padded before, so that new ones follow them.
An op that would mix padding with real elements is refused by name. A module without buckets stays,
unless the target takes static shapes alone (`static`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Final

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.dims import DimsAttr
from mllm_compiler.dialects.mllm import BoundAttr, VariantAttr
from mllm_compiler.dialects.types import ranked, shape_of
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.bucket_shapes.padded import LENGTH, Padded
from mllm_compiler.passes.bucket_shapes.table import RULES
from mllm_compiler.passes.graphs import (
    DIMS,
    NAME,
    VARIANT,
    argument_names,
    block_of,
    graphs,
    located_clone,
    pipeline_of,
    remove_dead,
    result_names,
    return_of,
)

MOST: Final = 256
"""Graphs that are made of one."""


@dataclass(frozen=True)
class BucketShapes(ModulePass):
    """Makes the variants of every graph, where a symbol has buckets.

    Attributes:
        static: Whether graphs whose symbols have no buckets get their largest sizes too.
        graphs: The graphs that `static` is said of; none: all.
    """

    name = "bucket-shapes"
    static: bool = False
    graphs: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Puts variants in the place of graphs that have symbols.

        Raises:
            CompileError: MLC-P002, an op would mix padding with real elements; MLC-P003, there are
                too many choices of buckets.
        """
        bounds = {b.symbol.data: b for b in pipeline_of(op).bounds}
        buckets = any(b.buckets.data for b in bounds.values())
        for graph in graphs(op):
            symbols = _symbols(block_of(graph).args)
            named = not self.graphs or graph.sym_name.data in self.graphs
            if symbols and (buckets or (self.static and named)):
                _check_count(graph, [_bound(s, bounds) for s in symbols])
                _bucket(op, graph, {s: _bound(s, bounds) for s in sorted(symbols)})


def _check_count(graph: FuncOp, bounds: Iterable[BoundAttr]) -> None:
    count = prod(len(b.sizes) for b in bounds)
    if count <= MOST:
        return
    raise CompileError(
        "MLC-P003",
        f"the buckets make {count} graphs, at most {MOST} are made",
        location=graph.sym_name.data,
        remedy="give fewer buckets",
    )


def _bound(symbol: str, bounds: Mapping[str, BoundAttr]) -> BoundAttr:
    return bounds.get(symbol) or BoundAttr.of(symbol, mllm.default_bound(symbol))


def _symbols(values: Iterable[SSAValue]) -> set[str]:
    tensors = (v for v in values if ranked(v) is not None)
    return {s for v in tensors for dim in shape_of(v) for s in dim.symbols()}


def _bucket(module: ModuleOp, graph: FuncOp, bounds: Mapping[str, BoundAttr]) -> None:
    """Replaces a graph by its variants."""
    left = _padded_left(graph) & bounds.keys()
    for sizes in product(*(b.sizes for b in bounds.values())):
        chosen = dict(zip(bounds, sizes, strict=True))
        several = [str(n) for s, n in chosen.items() if len(bounds[s].sizes) > 1]
        made = located_clone(graph)
        name = graph.sym_name.data
        made.properties["sym_name"] = StringAttr("_".join([name, *(several or ["static"])]))
        made.attributes[VARIANT] = VariantAttr.of(name, chosen, left)
        module.body.block.insert_op_before(made, graph)
        pad_graph(made, chosen, left)
    graph.detach()
    graph.erase()


def _padded_left(graph: FuncOp) -> frozenset[str]:
    """The symbols of parts that others are joined to: their padding stands before them."""
    left: set[str] = set()
    for op in block_of(graph).ops:
        if isinstance(op, mllm.KvAppendOp):
            left |= shape_of(op.past)[2].symbols()
        elif isinstance(op, mllm.CachedAttentionOp):
            left |= shape_of(op.past_k)[2].symbols()
        elif isinstance(op, mllm.ConcatOp):
            for x in op.xs[:-1]:
                left |= shape_of(x)[op.axis.value.data].symbols()
    return frozenset(left)


def pad_graph(graph: FuncOp, sizes: Mapping[str, int], left: frozenset[str]) -> None:
    """Gives a graph static shapes, and keeps padding out of its results' real elements.

    Raises:
        CompileError: MLC-P002.
    """
    block = block_of(graph)
    ops, names = list(block.ops), argument_names(graph)
    for op in ops:
        _check(op)
    padded = Padded(graph, sizes, left)
    for op in ops:
        values = [v for v in (*op.operands, *op.results) if ranked(v) is not None]
        if not any(d.symbols() for v in values for d in padded.dims(v)):
            continue
        if not isinstance(op, ReturnOp):
            RULES[type(op)](op, padded)
    remove_dead(graph)
    names += [f"{LENGTH}{symbol}" for symbol in padded.lengths]
    graph.properties["arg_attrs"] = _ports(names, block.args, padded)
    graph.properties["res_attrs"] = _ports(result_names(graph), return_of(graph).operands, padded)
    graph.update_function_type()


def _check(op: Operation) -> None:
    """Refuses an op that has symbols and no rule, or a dim that only data decide."""
    values = [v for v in (*op.operands, *op.results) if ranked(v) is not None]
    dims = [d for v in values for d in shape_of(v)]
    unknown = any(d.unknown for d in dims)
    symbolic = any(d.symbols() for d in dims)
    if isinstance(op, ReturnOp) or not (unknown or (symbolic and type(op) not in RULES)):
        return
    why = "its shape depends on data" if unknown else "nothing is known of its padding"
    raise Padded.refusal(op, why)


def _ports(
    names: Sequence[str], values: Iterable[SSAValue], padded: Padded
) -> ArrayAttr[DictionaryAttr]:
    return ArrayAttr(
        DictionaryAttr({NAME: StringAttr(name), DIMS: DimsAttr(padded.dims(value))})
        for name, value in zip(names, values, strict=True)
    )
