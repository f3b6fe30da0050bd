"""`lift-mlp`: a feed-forward block becomes `mllm.mlp`; exact.

    %0 = mllm.linear %x, %w1, %b1 : (tensor<2x8xf32>, ...) -> tensor<2x16xf32>
    %1 = mllm.unary gelu %0 : (tensor<2x16xf32>) -> tensor<2x16xf32>
    %2 = mllm.linear %1, %w2, %b2 : (tensor<2x16xf32>, ...) -> tensor<2x8xf32>

becomes

    %2 = mllm.mlp gelu %x, %w1, %w2 b1(%b1 : tensor<16xf32>) b2(%b2 : tensor<8xf32>)
      : (...) -> tensor<2x8xf32>

where nothing else reads what is between.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from mllm_compiler.dialects.mllm import LinearOp, MlpOp
from mllm_compiler.passes.lift_gated_mlp import activated
from mllm_compiler.passes.matching import made_by
from mllm_compiler.passes.rewrite import On, rewrite, substitute


def _mlp(op: LinearOp, rewriter: PatternRewriter) -> None:
    active = activated(op.x)
    first = made_by(active[1], LinearOp) if active is not None else None
    if active is None or first is None or not first.result.has_one_use():
        return
    made = MlpOp(active[0], first.x, first.weight, op.weight, b1=first.bias, b2=op.bias)
    substitute(rewriter, op, made)


@dataclass(frozen=True)
class LiftMlp(ModulePass):
    """Recognises feed-forward blocks."""

    name = "lift-mlp"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites to a fixpoint."""
        rewrite(op, On(LinearOp, _mlp))
