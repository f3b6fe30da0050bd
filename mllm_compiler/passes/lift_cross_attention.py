"""`lift-cross-attention`: attention to another stream becomes `mllm.cross_attn`; exact.

    %q = mllm.linear %hidden, %wq : (tensor<1x3x32xf32>, tensor<32x32xf32>) -> tensor<1x3x32xf32>
    %k = mllm.linear %encoded, %wk : (tensor<1x9x32xf32>, tensor<32x32xf32>) -> tensor<1x9x32xf32>
    %v = mllm.linear %encoded, %wv : (tensor<1x9x32xf32>, tensor<32x32xf32>) -> tensor<1x9x32xf32>
    %y = mllm.attention %q, %k, %v {heads = 4 : i64, ...} : (...) -> tensor<1x3x32xf32>

becomes

    %y = mllm.cross_attn %q, %k, %v {heads = 4 : i64, ...} : (...) -> tensor<1x3x32xf32>

where q and k are projections of different values, and what the one comes from among the function's
arguments is not part of what the other comes from. Masks of order, biases and growing caches mark
one stream, and stay `mllm.attention`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from mllm_compiler.dialects.mllm import (
    AttentionOp,
    BinaryOp,
    CastOp,
    CrossAttnOp,
    KvAppendOp,
    LayerNormOp,
    LinearOp,
    MatmulOp,
    ReshapeOp,
    RmsNormOp,
    RopeOp,
    SliceOp,
    TransposeOp,
    WeightOp,
    constant_array,
)
from mllm_compiler.passes.rewrite import On, rewrite, substitute

_PASSING = (ReshapeOp, TransposeOp, SliceOp, CastOp, RopeOp, RmsNormOp, LayerNormOp)
"""Ops between a projection and an attention; their first operand is the stream."""


def projected(value: SSAValue) -> SSAValue:
    """What a query or key is a projection of; itself where there is no projection."""
    while True:
        owner = value.owner
        if isinstance(owner, _PASSING):
            value = owner.operands[0]
        elif isinstance(owner, BinaryOp) and _is_constant(owner.b):
            value = owner.a
        elif isinstance(owner, LinearOp):
            return owner.x
        elif isinstance(owner, MatmulOp):
            return owner.a
        else:
            return value


def _is_constant(value: SSAValue) -> bool:
    return constant_array(value) is not None or isinstance(value.owner, WeightOp)


@dataclass
class Streams:
    """Which arguments of functions and regions each value comes from, as bits of a number."""

    arguments: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])
    bits: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])

    def of(self, value: SSAValue) -> int:
        """The arguments that a value comes from."""
        pending = [value]
        while pending:
            this = pending[-1]
            owner = this.owner
            if this in self.bits:
                pending.pop()
            elif isinstance(owner, Operation):
                self._join(this, owner, pending)
            else:
                self.bits[this] = 1 << self.arguments.setdefault(this, len(self.arguments))
        return self.bits[value]

    def _join(self, value: SSAValue, owner: Operation, pending: list[SSAValue]) -> None:
        missing = [v for v in owner.operands if v not in self.bits]
        if missing:
            pending += missing
            return
        total = 0
        for operand in owner.operands:
            total |= self.bits[operand]
        self.bits[value] = total


def _cross(streams: Streams, op: AttentionOp, rewriter: PatternRewriter) -> None:
    if op.causal or op.bias is not None or isinstance(op.k.owner, KvAppendOp):
        return
    query, key = projected(op.q), projected(op.k)
    if query is key:
        return
    from_query, from_key = streams.of(query), streams.of(key)
    if not from_query & ~from_key and not from_key & ~from_query:
        return
    new = CrossAttnOp(
        op.q,
        op.k,
        op.v,
        heads=op.head_count,
        kv_heads=op.kv_head_count,
        scale=op.scale_value,
        key_mask=op.key_mask,
    )
    substitute(rewriter, op, new)


@dataclass(frozen=True)
class LiftCrossAttention(ModulePass):
    """Recognises attention to another stream."""

    name = "lift-cross-attention"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites to a fixpoint."""
        streams = Streams()
        rewrite(op, On(AttentionOp, lambda op, rewriter: _cross(streams, op, rewriter)))
