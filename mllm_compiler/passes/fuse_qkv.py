"""`fuse-qkv`: the products that make queries, keys and values of one stream become one.

    %q = mllm.linear %x, %wq : (tensor<1x3x16xf32>, tensor<16x16xf32>) -> tensor<1x3x16xf32>
    %k = mllm.linear %x, %wk, %bk : (tensor<1x3x16xf32>, tensor<8x16xf32>, tensor<8xf32>) -> ...
    %v = mllm.linear %x, %wv : (tensor<1x3x16xf32>, tensor<8x16xf32>) -> tensor<1x3x8xf32>
    %y = mllm.attention %q, %k, %v {heads = 4 : i64, kv_heads = 2 : i64, scale = 0.5 : f64} : ...

becomes

    %w = mllm.weight #mllm.blob<"sha256:...", f32, [32, 16]> {name = "q+k+v"} : tensor<32x16xf32>
    %b = mllm.weight ... : tensor<32xf32>
    %q, %k, %v = mllm.qkv %x, %w bias(%b : tensor<32xf32>) {heads = 4 : i64, kv_heads = 2 : i64}
      : (tensor<1x3x16xf32>, tensor<32x16xf32>) -> (tensor<1x3x16xf32>, tensor<1x3x8xf32>, ...)
    %y = mllm.attention %q, %k, %v {heads = 4 : i64, kv_heads = 2 : i64, scale = 0.5 : f64} : ...

Between a product and the attention there may be a norm, rotary positions and a cache. Quantised
weights, `mllm.dequantize` of codes, are joined as codes, scales and zero points. Rows are written
one weight after another, so that no more than one is in memory. A bias that is absent is zeros.
Products are the same sums, to the rounding of another order.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint

from mllm_compiler.dialects import store_of
from mllm_compiler.dialects.mllm import (
    AttentionOp,
    KvAppendOp,
    LayerNormOp,
    LinearOp,
    QkvOp,
    ReshapeOp,
    RmsNormOp,
    RopeOp,
    TransposeOp,
)
from mllm_compiler.dialects.types import rank_of
from mllm_compiler.passes.joined_weights import joined, joined_biases
from mllm_compiler.passes.rewrite import On, rewrite
from mllm_compiler.weights import WeightStore

BETWEEN = (LayerNormOp, RmsNormOp, RopeOp, ReshapeOp, TransposeOp)
"""Ops that may stand between a product and the attention; their first operand goes on."""


def _qkv(store: WeightStore, op: AttentionOp, rewriter: PatternRewriter) -> None:
    found = [_product(side) for side in (op.q, op.k, op.v)]
    parts = [part for part in found if part is not None]
    if len(set(parts)) < 3 or len({part.x for part in parts}) > 1 or rank_of(parts[0].x) != 3:
        return
    block = op.parent_block()
    if block is None or any(part.parent_block() is not block for part in parts):
        return
    weight = joined(store, [part.weight for part in parts])
    bias = joined_biases(store, [part.bias for part in parts], [part.weight for part in parts])
    if weight is None or bias is None:
        return
    made = QkvOp(
        parts[0].x,
        weight[-1].results[0],
        bias[0].results[0] if bias else None,
        results=[part.result.type for part in parts],
        heads=op.head_count,
        kv_heads=op.kv_head_count,
    )
    first = min(parts, key=block.get_operation_index)
    rewriter.insert([*weight, *bias, made], InsertPoint.before(first))
    for part, result in zip(parts, made.results, strict=True):
        rewriter.replace(part, [], [result])


def _product(value: SSAValue) -> LinearOp | None:
    """The product that queries, keys or values come from."""
    while True:
        owner = value.owner
        if isinstance(owner, KvAppendOp):
            value = owner.new
        elif isinstance(owner, BETWEEN):
            value = owner.x
        else:
            return owner if isinstance(owner, LinearOp) else None


@dataclass(frozen=True)
class FuseQkv(ModulePass):
    """Makes one product of those for queries, keys and values."""

    name = "fuse-qkv"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites to a fixpoint."""
        store = store_of(ctx)
        rewrite(op, On(AttentionOp, lambda op, rewriter: _qkv(store, op, rewriter)))
