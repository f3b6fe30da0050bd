"""`fuse-bias-activation`: a function becomes the end of the product that it is applied to; exact.

    %0 = mllm.linear %x, %w, %b : (tensor<2x8xf32>, tensor<16x8xf32>, tensor<16xf32>) -> ...
    %1 = mllm.unary gelu %0 : (tensor<2x16xf32>) -> tensor<2x16xf32>

becomes

    %1 = mllm.activated_linear gelu %x, %w, %b
      : (tensor<2x8xf32>, tensor<16x8xf32>, tensor<16xf32>) -> tensor<2x16xf32>

where nothing else reads %0 and the function is an activation. A bias that is added to a product is
part of it since `lift-linear`; the activation inside of a feed-forward block, since `lift-mlp`.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from mllm_compiler.dialects.mllm import ActivatedLinearOp, Activation, LinearOp, UnaryOp
from mllm_compiler.passes.lift_gated_mlp import ACTIVATIONS
from mllm_compiler.passes.matching import made_by
from mllm_compiler.passes.rewrite import On, rewrite, substitute


def _activation(op: UnaryOp, rewriter: PatternRewriter) -> None:
    linear = made_by(op.x, LinearOp)
    if op.kind.data not in ACTIVATIONS or linear is None or not op.x.has_one_use():
        return
    made = ActivatedLinearOp(Activation(op.kind.data), linear.x, linear.weight, linear.bias)
    substitute(rewriter, op, made)


@dataclass(frozen=True)
class FuseBiasActivation(ModulePass):
    """Applies functions where products end."""

    name = "fuse-bias-activation"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites to a fixpoint."""
        rewrite(op, On(UnaryOp, _activation))
