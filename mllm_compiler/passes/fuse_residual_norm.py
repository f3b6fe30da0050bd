"""`fuse-residual-norm`: a sum that goes on as the residual stream and its norm are made at once.

    %s = mllm.binary add %x, %y : (tensor<1x3x8xf32>, tensor<1x3x8xf32>) -> tensor<1x3x8xf32>
    %n = mllm.rms_norm %s, %w {epsilon = 1.0e-05 : f64} : (tensor<1x3x8xf32>, tensor<8xf32>) -> ...

becomes

    %s, %n = mllm.residual_norm rms %x, %y weight(%w : tensor<8xf32>) {epsilon = 1.0e-05 : f64}
      : (tensor<1x3x8xf32>, tensor<1x3x8xf32>) -> (tensor<1x3x8xf32>, tensor<1x3x8xf32>)

also where nothing else reads %s. A sum that broadcasts is no residual stream. Exact.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from mllm_compiler.dialects.mllm import (
    BinaryKind,
    BinaryOp,
    LayerNormOp,
    NormKind,
    ResidualNormOp,
    RmsNormOp,
)
from mllm_compiler.dialects.types import shape_of
from mllm_compiler.passes.graphs import brought_before
from mllm_compiler.passes.matching import made_by
from mllm_compiler.passes.rewrite import On, rewrite


def _norm(op: RmsNormOp | LayerNormOp, rewriter: PatternRewriter) -> None:
    total = made_by(op.x, BinaryOp)
    if total is None or total.kind.data is not BinaryKind.ADD or total.parent is not op.parent:
        return
    dims = shape_of(total.result)
    if any(shape_of(v) != dims for v in total.operands) or any(d.unknown for d in dims):
        return
    if dims[-1].as_int() is None:
        return  # Only a norm that stands alone can leave out what its rows are padded with.
    if not all(brought_before(side, total) for side in op.operands[1:]):
        return
    made = ResidualNormOp(
        norm_kind(op),
        total.a,
        total.b,
        op.weight,
        op.bias if isinstance(op, LayerNormOp) else None,
        epsilon=op.epsilon.value.data,
        results=[total.result.type, op.result.type],
    )
    rewriter.replace(total, made, [made.sum])
    rewriter.replace(op, [], [made.result])


def norm_kind(op: RmsNormOp | LayerNormOp) -> NormKind:
    """Which norm an op computes."""
    return NormKind.RMS if isinstance(op, RmsNormOp) else NormKind.LAYER


@dataclass(frozen=True)
class FuseResidualNorm(ModulePass):
    """Makes sums and their norms at once."""

    name = "fuse-residual-norm"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites to a fixpoint."""
        rewrite(op, On(RmsNormOp, _norm), On(LayerNormOp, _norm))
