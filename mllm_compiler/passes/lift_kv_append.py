"""`lift-kv-append`: new tokens joined to a cache become `mllm.kv_append`; exact.

    %0 = mllm.reshape %new : (tensor<1x3x16xf32>) -> tensor<1x3x2x8xf32>
    %1 = mllm.transpose %0 {perm = array<i64: 0, 2, 1, 3>} : (...) -> tensor<1x2x3x8xf32>
    %2 = mllm.concat %past, %1 {axis = 2 : i64} : (tensor<1x2x5x8xf32>, ...) -> tensor<1x2x8x8xf32>

becomes

    %2 = mllm.kv_append %past, %new {kv_heads = 2 : i64}
      : (tensor<1x2x5x8xf32>, tensor<1x3x16xf32>) -> tensor<1x2x8x8xf32>

where the past is an argument of the function.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from mllm_compiler.dialects.mllm import ConcatOp, KvAppendOp, ReshapeOp, TransposeOp
from mllm_compiler.dialects.types import rank_of, shape_of
from mllm_compiler.passes.canonical_form import SHAPE_PATTERNS
from mllm_compiler.passes.rewrite import On, rewrite, substitute


def _append(op: ConcatOp, rewriter: PatternRewriter) -> None:
    if len(op.xs) != 2 or op.axis.value.data != 2 or rank_of(op.result) != 4:
        return
    past, new = op.xs
    heads = shape_of(past)[1].as_int()
    if not isinstance(past, BlockArgument) or heads is None:
        return
    batch, _, length, size = shape_of(new)
    if length.unknown or batch.unknown or size.as_int() is None:
        return
    tokens = TransposeOp(new, (0, 2, 1, 3))
    flat = ReshapeOp(tokens.result, (batch, length, size * heads))
    substitute(rewriter, op, tokens, flat, KvAppendOp(past, flat.result, kv_heads=heads))


@dataclass(frozen=True)
class LiftKvAppend(ModulePass):
    """Recognises caches that grow."""

    name = "lift-kv-append"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites to a fixpoint."""
        rewrite(op, On(ConcatOp, _append), *SHAPE_PATTERNS)
