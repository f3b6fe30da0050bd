"""`fuse-cached-attention`: attention and the cache that it appends to become one op; exact.

    %k1 = mllm.kv_append %past_k, %k {kv_heads = 2 : i64} : ...
    %v1 = mllm.kv_append %past_v, %v {kv_heads = 2 : i64} : ...
    %y = mllm.attention %q, %k1, %v1 {heads = 4 : i64, kv_heads = 2 : i64, causal = true, ...} : ...

becomes

    %y, %k1, %v1 = mllm.cached_attention %q, %k, %v past(%past_k, %past_v)
      {heads = 4 : i64, kv_heads = 2 : i64, causal = true, ...} : ...

so that a target appends where the cache lies, instead of writing all of it again. Nothing may read
the grown cache before. Queries of another stream have no new keys of their own and stay.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from mllm_compiler.dialects.mllm import AttentionOp, CachedAttentionOp, KvAppendOp
from mllm_compiler.dialects.types import shape_of
from mllm_compiler.passes.graphs import users
from mllm_compiler.passes.matching import made_by
from mllm_compiler.passes.rewrite import On, rewrite


def _cache(op: AttentionOp, rewriter: PatternRewriter) -> None:
    key, value = made_by(op.k, KvAppendOp), made_by(op.v, KvAppendOp)
    if key is None or value is None or key is value or not _fits(op, key, value):
        return
    made = CachedAttentionOp(
        op.q,
        key.new,
        value.new,
        key.past,
        value.past,
        heads=op.head_count,
        kv_heads=op.kv_head_count,
        scale=op.scale_value,
        results=[op.result.type, key.result.type, value.result.type],
        causal=bool(op.causal),
        window=op.window.value.data if op.window else None,
        key_mask=op.key_mask,
        bias=op.bias,
    )
    rewriter.replace(op, made, [made.result])
    rewriter.replace(key, [], [made.present_k])
    rewriter.replace(value, [], [made.present_v])


def _fits(op: AttentionOp, key: KvAppendOp, value: KvAppendOp) -> bool:
    """Whether both appends are of this attention's tokens, and what they make is read behind it."""
    if any(shape_of(new)[1] != shape_of(op.q)[1] for new in (key.new, value.new)):
        return False
    if any(append.parent is not op.parent for append in (key, value)):
        return False
    if any(append.kv_heads.value.data != op.kv_head_count for append in (key, value)):
        return False
    readers = [u for append in (key, value) for u in users(append.result) if u is not op]
    return all(op.is_before_in_block(reader) for reader in readers)


@dataclass(frozen=True)
class FuseCachedAttention(ModulePass):
    """Lets attention append to the cache that it reads."""

    name = "fuse-cached-attention"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites to a fixpoint."""
        rewrite(op, On(AttentionOp, _cache))
