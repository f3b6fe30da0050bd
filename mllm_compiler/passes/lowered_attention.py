"""Attention and caches as the few operators that every vendor has.

Scores are products of matrices for each head of keys; queries that share a head are rows of one
matrix. Masks are added: what a query must not see gets a score so low that the softmax is 0, and
where it sees nothing all scores are alike.
"""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import f32
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.types import extents
from mllm_compiler.passes.graphs import block_of
from mllm_compiler.passes.lowering import TensorBuilder

POSITIONS = 4096
"""How many positions tables of angles have in a graph without attention."""


def attention(op: mllm.AttentionOp | mllm.CrossAttnOp, b: TensorBuilder) -> SSAValue:
    """Y = softmax(scale q k^T + masks) v."""
    batch, tokens, _ = extents(op.q)
    heads, kv_heads = op.head_count, op.kv_head_count
    q, k, v = split_heads(b, op.q, heads), *(cached(b, x, kv_heads) for x in (op.k, op.v))
    keys, size, value_size = extents(k)[2], extents(q)[3], extents(v)[3]
    q = b.mul(q, b.real(op.scale_value))
    rows = heads // kv_heads * tokens
    scores = b.product(b.reshape(q, (batch, kv_heads, rows, size)), k, transpose_b=True)
    mask = _mask(op, b)
    if mask is not None:
        apart = b.reshape(scores, (batch, heads, tokens, keys))
        scores = b.reshape(b.add(apart, mask), (batch, kv_heads, rows, keys))
    weights = b.softmax(scores)
    seen = b.reshape(b.product(weights, v), (batch, heads, tokens, value_size))
    return merge_heads(b, seen)


def split_heads(b: TensorBuilder, x: SSAValue, heads: int) -> SSAValue:
    """[B, T, H*D] -> [B, H, T, D]."""
    batch, tokens, width = extents(x)
    return b.transpose(b.reshape(x, (batch, tokens, heads, width // heads)), (0, 2, 1, 3))


def merge_heads(b: TensorBuilder, x: SSAValue) -> SSAValue:
    """[B, H, T, D] -> [B, T, H*D]."""
    batch, heads, tokens, size = extents(x)
    return b.reshape(b.transpose(x, (0, 2, 1, 3)), (batch, tokens, heads * size))


def kv_append(op: mllm.KvAppendOp, b: TensorBuilder) -> SSAValue:
    """The past with the new tokens behind."""
    return b.concat([op.past, split_heads(b, op.new, op.kv_heads.value.data)], 2)


def cached(b: TensorBuilder, x: SSAValue, heads: int) -> SSAValue:
    """Keys or values as a cache has them, [B, Hkv, S, D]."""
    return x if len(extents(x)) == 4 else split_heads(b, x, heads)


def _mask(op: mllm.AttentionOp | mllm.CrossAttnOp, b: TensorBuilder) -> SSAValue | None:
    """What is added to the scores, [*, *, T, S]; None where every query sees every key."""
    mask = None
    if op.key_mask is not None:
        batch, keys = extents(op.key_mask)
        seen = b.reshape(b.cast(op.key_mask, f32), (batch, 1, 1, keys))
        seen = b.minimum(seen, b.real(1.0))
        mask = b.mul(b.subtract(b.real(1.0), seen), b.real(b.hidden))
    if isinstance(op, mllm.CrossAttnOp):
        return mask
    if op.causal and (future := unseen_future(op, b.hidden)) is not None:
        hidden = b.constant(future)
        mask = hidden if mask is None else b.minimum(mask, hidden)
    if op.bias is None:
        return mask
    return op.bias if mask is None else b.add(op.bias, mask)


def unseen_future(
    op: mllm.AttentionOp, hidden: float
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]] | None:
    """[1, 1, T, S]: `hidden` where a causal query must not see; None where it sees all."""
    tokens, keys = extents(op.q)[1], op.keys.as_int() or 0
    at = np.arange(tokens)[:, None] + (keys - tokens) - np.arange(keys)[None]
    unseen = at < 0
    if op.window is not None:
        unseen |= at >= op.window.value.data
    if not unseen.any():
        return None
    return np.where(unseen, np.float32(hidden), np.float32(0))[None, None]


def positions_of(graph: FuncOp) -> int:
    """How many positions tables of angles need: as many as attention reads keys."""
    attending = (mllm.AttentionOp, mllm.CachedAttentionOp, mllm.CrossAttnOp)
    keys = [op.keys.as_int() or 0 for op in block_of(graph).ops if isinstance(op, attending)]
    return max(keys, default=POSITIONS)
