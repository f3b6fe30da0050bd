"""`lift-gated-mlp`: a gated feed-forward block becomes `mllm.gated_mlp`; exact.

    %0 = mllm.linear %x, %gate : (tensor<2x8xf32>, tensor<16x8xf32>) -> tensor<2x16xf32>
    %1 = mllm.unary silu %0 : (tensor<2x16xf32>) -> tensor<2x16xf32>
    %2 = mllm.linear %x, %up : (tensor<2x8xf32>, tensor<16x8xf32>) -> tensor<2x16xf32>
    %3 = mllm.binary mul %1, %2 : (tensor<2x16xf32>, tensor<2x16xf32>) -> tensor<2x16xf32>
    %4 = mllm.linear %3, %down : (tensor<2x16xf32>, tensor<8x16xf32>) -> tensor<2x8xf32>

becomes

    %4 = mllm.gated_mlp silu %x, %gate, %up, %down : (...) -> tensor<2x8xf32>

where nothing else reads what is between.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from mllm_compiler.dialects.mllm import Activation, BinaryKind, GatedMlpOp, LinearOp, UnaryOp
from mllm_compiler.passes.matching import binary, made_by
from mllm_compiler.passes.rewrite import On, rewrite, substitute

ACTIVATIONS = frozenset(Activation)
"""The unary kinds that a feed-forward op can have."""


def plain_linear(value: SSAValue) -> LinearOp | None:
    """The product without bias that makes a value of one user."""
    linear = made_by(value, LinearOp)
    return linear if linear is not None and linear.bias is None and value.has_one_use() else None


def activated(value: SSAValue) -> tuple[Activation, SSAValue] | None:
    """The activation and its operand, where it makes a value of one user."""
    op = made_by(value, UnaryOp)
    if op is None or op.kind.data not in ACTIVATIONS or not value.has_one_use():
        return None
    return Activation(op.kind.data), op.x


def _gated(op: LinearOp, rewriter: PatternRewriter) -> None:
    pair = binary(op.x, BinaryKind.MUL)
    if op.bias is not None or pair is None or not op.x.has_one_use():
        return
    for left, right in (pair, pair[::-1]):
        active, up = activated(left), plain_linear(right)
        gate = plain_linear(active[1]) if active is not None else None
        if active is None or gate is None or up is None or gate.x is not up.x:
            continue
        made = GatedMlpOp(active[0], gate.x, gate.weight, up.weight, op.weight)
        substitute(rewriter, op, made)
        return


@dataclass(frozen=True)
class LiftGatedMlp(ModulePass):
    """Recognises gated feed-forward blocks."""

    name = "lift-gated-mlp"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites to a fixpoint."""
        rewrite(op, On(LinearOp, _gated))
