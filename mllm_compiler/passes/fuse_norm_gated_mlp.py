"""`fuse-norm-gated-mlp`: a norm becomes part of the gated feed-forward block behind it; exact.

    %n = mllm.rms_norm %x, %w {epsilon = 1.0e-05 : f64} : (tensor<1x3x8xf32>, tensor<8xf32>) -> ...
    %y = mllm.gated_mlp silu %n, %gate, %up, %down : (tensor<1x3x8xf32>, tensor<16x8xf32>, ...

becomes

    %y = mllm.norm_gated_mlp rms silu %x, %gate, %up, %down weight(%w : tensor<8xf32>)
      {epsilon = 1.0e-05 : f64} : (tensor<1x3x8xf32>, tensor<16x8xf32>, ...) -> tensor<1x3x8xf32>

where nothing else reads %n: SwiGLU and GeGLU, with either norm.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from mllm_compiler.dialects.mllm import GatedMlpOp, LayerNormOp, NormGatedMlpOp, RmsNormOp
from mllm_compiler.passes.fuse_residual_norm import norm_kind
from mllm_compiler.passes.rewrite import On, rewrite, substitute


def _norm(op: GatedMlpOp, rewriter: PatternRewriter) -> None:
    norm = op.x.owner
    if not isinstance(norm, RmsNormOp | LayerNormOp) or not op.x.has_one_use():
        return
    made = NormGatedMlpOp(
        norm_kind(norm),
        op.activation.data,
        norm.x,
        op.gate,
        op.up,
        op.down,
        weight=norm.weight,
        bias=norm.bias if isinstance(norm, LayerNormOp) else None,
        epsilon=norm.epsilon.value.data,
    )
    substitute(rewriter, op, made)


@dataclass(frozen=True)
class FuseNormGatedMlp(ModulePass):
    """Norms the rows where the feed-forward block reads them."""

    name = "fuse-norm-gated-mlp"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites to a fixpoint."""
        rewrite(op, On(GatedMlpOp, _norm))
