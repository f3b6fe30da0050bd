"""`fuse-quantized-linear`: products of the same codes with several weights become one; exact.

    %a = mllm.quantized_linear %x, %s, %wa, %ta
      : (tensor<3x8xi8>, tensor<3x1xf32>, tensor<16x8xi8>, tensor<16x1xf16>) -> tensor<3x16xf32>
    %b = mllm.quantized_linear %x, %s, %wb, %tb
      : (tensor<3x8xi8>, tensor<3x1xf32>, tensor<32x8xi8>, tensor<32x1xf16>) -> tensor<3x32xf32>

becomes

    %w = mllm.weight #mllm.blob<"sha256:...", i8, [48, 8]> {name = "a+b"} : tensor<48x8xi8>
    %t = mllm.weight ... : tensor<48x1xf16>
    %y = mllm.quantized_linear %x, %s, %w, %t : (...) -> tensor<3x48xf32>
    %a = mllm.slice %y {starts = #mllm.dims<"0", "0">, ...} : ... -> tensor<3x16xf32>
    %b = mllm.slice %y {starts = #mllm.dims<"0", "16">, ...} : ... -> tensor<3x32xf32>

So do queries, keys and values of one stream, and gate and up of a feed-forward block. Formats of
weights must be alike; each row keeps its codes, scales, zero points and bias. Products with an
attention between them are of different layers and stay apart: joined, the results of all layers
would wait in memory. Rows are written one weight after another, so that no more than one is held.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from mllm_compiler.dialects import store_of
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import (
    AttentionOp,
    CachedAttentionOp,
    CrossAttnOp,
    QuantizedLinearOp,
    SliceOp,
)
from mllm_compiler.dialects.mllm.quant import value_of
from mllm_compiler.dialects.types import element_of, shape_of
from mllm_compiler.passes.graphs import block_of, graphs, remove_dead
from mllm_compiler.passes.joined_weights import joined, joined_biases
from mllm_compiler.passes.rewrite import retype
from mllm_compiler.weights import WeightStore

ATTENTION = (AttentionOp, CachedAttentionOp, CrossAttnOp)


@dataclass(frozen=True)
class FuseQuantizedLinear(ModulePass):
    """Makes one product of those that read the same codes."""

    name = "fuse-quantized-linear"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Joins the products of each graph."""
        store = store_of(ctx)
        for graph in graphs(op):
            for parts in list(_groups(graph)):
                _join(store, parts)
            remove_dead(graph)


def _groups(graph: FuncOp) -> Iterator[list[QuantizedLinearOp]]:
    """The products that read the same codes with weights of one format, layer by layer."""
    found: dict[Hashable, list[QuantizedLinearOp]] = {}
    for op in block_of(graph).ops:
        if isinstance(op, QuantizedLinearOp) and _is_own(op):
            found.setdefault(_format(op), []).append(op)
        elif isinstance(op, ATTENTION):
            yield from found.values()
            found = {}
    yield from found.values()


def _is_own(op: QuantizedLinearOp) -> bool:
    """Whether nothing else reads the weight, so that it is not stored twice."""
    return op.weight.has_one_use()


def _format(op: QuantizedLinearOp) -> Hashable:
    """What products must have in common."""
    rows, scale, zero = op.weight, op.weight_scale, op.weight_zero
    return (
        (op.x, op.x_scale, op.x_zero, value_of(op.block_size)),
        (element_of(rows), element_of(scale), shape_of(scale)[1:]),
        None if zero is None else shape_of(zero)[1:],
        element_of(op.result),
    )


def _join(store: WeightStore, parts: Sequence[QuantizedLinearOp]) -> None:
    if len(parts) < 2:
        return
    sides = [[p.weight for p in parts], [p.weight_scale for p in parts]]
    sides += [zeros] if (zeros := [p.weight_zero for p in parts if p.weight_zero]) else []
    biases = joined_biases(store, [p.bias for p in parts], sides[0])
    if biases is None or not all(_has_rows(side, sides[0]) for side in sides):
        return
    made: list[Operation] = [*biases]
    values: list[SSAValue] = []
    for side in sides:
        ops = joined(store, side)
        if ops is None:
            return
        made += ops
        values.append(ops[-1].results[0])
    first = parts[0]
    product = QuantizedLinearOp(
        first.x,
        first.x_scale,
        values[0],
        values[1],
        x_zero=first.x_zero,
        weight_zero=values[2] if zeros else None,
        bias=biases[0].results[0] if biases else None,
        block_size=value_of(first.block_size),
    )
    _replace(parts, [*made, product])


def _has_rows(side: Sequence[SSAValue], weights: Sequence[SSAValue]) -> bool:
    """Whether each parameter has the rows of its weight."""
    return [shape_of(v)[:1] for v in side] == [shape_of(w)[:1] for w in weights]


def _replace(parts: Sequence[QuantizedLinearOp], made: Sequence[Operation]) -> None:
    """Puts ops, the last of them the product, before the first part, and cuts it in parts."""
    block = parts[0].parent_block()
    assert block is not None
    y, start = made[-1].results[0], Dim.const(0)
    cuts: list[Operation] = []
    for part in parts:
        dims = shape_of(part.result)
        cut = SliceOp(y, (*[0] * (len(dims) - 1), start), dims)
        cut.location = part.location
        retype(cut, part)
        cuts.append(cut)
        start = start + dims[-1]
    for op in made:
        op.location = parts[0].location
    block.insert_ops_before([*made, *cuts], parts[0])
    for part, cut in zip(parts, cuts, strict=True):
        part.result.replace_all_uses_with(cut.results[0])
        part.detach()
        part.erase()
