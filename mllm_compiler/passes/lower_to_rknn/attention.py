"""Attention, positions and caches in the spelling that the toolkit fuses.

Queries that share a head of keys are rows of one matrix, so that no key is copied; the scores are
scaled behind their product and masks are added to them, which the toolkit makes one operator of
(`exSDPAttention`).
"""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import f32, i1
from xdsl.ir import SSAValue

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.types import extents
from mllm_compiler.passes.folded_weights import numbers_of
from mllm_compiler.passes.lower_to_rknn.builder import Builder
from mllm_compiler.passes.lowered_attention import (
    cached,
    merge_heads,
    split_heads,
    unseen_future,
)


def attention(op: mllm.AttentionOp | mllm.CrossAttnOp, b: Builder) -> SSAValue:
    """Y = softmax(scale q k^T + masks) v."""
    batch, tokens, _ = extents(op.q)
    heads, kv_heads = op.head_count, op.kv_head_count
    shared = heads // kv_heads
    q, k, v = split_heads(b, op.q, heads), *(cached(b, x, kv_heads) for x in (op.k, op.v))
    q = b.reshape(q, (batch, kv_heads, shared * tokens, extents(q)[3]))
    scores = b.mul(b.product(q, k, transpose_b=True), b.real(op.scale_value))
    mask = _mask(op, b)
    if mask is not None:
        scores = b.add(scores, _for_rows(b, mask, kv_heads, shared))
    weights = b.softmax(scores)
    seen = b.product(weights, v)
    return merge_heads(b, b.reshape(seen, (batch, heads, tokens, extents(v)[3])))


def rope(op: mllm.RopeOp, b: Builder) -> SSAValue:
    """X cos + rotate(x) sin, where the halves of each head trade places and one is negated.

    Angles of far positions have no room in f16, so cosines and sines are looked up.
    """
    batch, tokens, width = extents(op.x)
    heads, (pairs,) = op.heads.value.data, extents(op.inv_freq)
    x = b.reshape(op.x, (batch, tokens, heads, width // heads))
    rest = list[SSAValue]()
    if 2 * pairs < width // heads:
        x, rest = b.slice(x, 3, 0, 2 * pairs), [b.slice(x, 3, 2 * pairs, width // heads)]
    paired = bool(op.interleaved)
    if paired:
        # Even elements before the odd ones: halves, as in the other form.
        apart = b.reshape(x, (batch, tokens, heads * pairs, 2))
        x = b.reshape(
            b.concat([_side(b, apart, i, (batch, tokens, heads, pairs)) for i in (0, 1)], 3),
            (batch, tokens, heads, 2 * pairs),
        )
    cos, sin = (_looked_up(op, b, kind) for kind in (np.cos, np.sin))
    first, second = b.slice(x, 3, 0, pairs), b.slice(x, 3, pairs, 2 * pairs)
    turned = b.concat([b.unary("Neg", second), first], 3)
    y = b.add(b.mul(x, cos), b.mul(turned, sin))
    if paired:
        halves = b.slice(y, 3, 0, pairs), b.slice(y, 3, pairs, 2 * pairs)
        columns = [b.reshape(half, (batch, tokens, heads * pairs, 1)) for half in halves]
        y = b.reshape(b.concat(columns, 3), (batch, tokens, heads, 2 * pairs))
    return b.reshape(b.concat([y, *rest], 3), (batch, tokens, width))


def _side(b: Builder, apart: SSAValue, at: int, dims: tuple[int, ...]) -> SSAValue:
    return b.reshape(b.slice(apart, 3, at, at + 1), dims)


def _looked_up(op: mllm.RopeOp, b: Builder, kind: np.ufunc) -> SSAValue:
    """Cosines or sines of positions, [B, T, 1, 2 * pairs]; once for all that read them."""

    def make() -> SSAValue:
        frequencies = numbers_of(op.inv_freq, b.store)
        assert frequencies is not None
        angles = np.arange(b.positions, dtype=np.float32)[:, None] * frequencies
        table = b.constant(np.tile(kind(angles), 2).astype(np.float32))
        rows = (*extents(op.positions), 2 * frequencies.size)
        found = b.call("Gather", [table, op.positions], rows, f32, axis=0)
        return b.reshape(found, (rows[0], rows[1], 1, rows[2]))

    return b.once((kind.__name__, op.positions, op.inv_freq), make)


def _for_rows(b: Builder, mask: SSAValue, kv_heads: int, shared: int) -> SSAValue:
    """A mask [*, 1 or H, 1 or T, S] for scores [B, Hkv, H / Hkv * T, S]."""
    batch, heads, tokens, keys = extents(mask)
    if shared == 1 or (heads == 1 and tokens == 1):
        return mask
    if heads == 1:
        return b.once(("rows", mask, shared), lambda: b.concat([mask] * shared, 2))
    return b.reshape(mask, (batch, kv_heads, shared * tokens, keys))


def _mask(op: mllm.AttentionOp | mllm.CrossAttnOp, b: Builder) -> SSAValue | None:
    """What is added to the scores, [*, *, T, S]; None where every query sees every key."""
    mask = None
    if op.key_mask is not None:
        mask = _unseen_keys(b, op.key_mask)
    if isinstance(op, mllm.CrossAttnOp):
        return mask
    if op.causal and (future := unseen_future(op, b.hidden)) is not None:
        hidden, before = b.constant(future), mask
        mask = hidden if before is None else b.sum(before, hidden)
    if op.bias is None:
        return mask
    return op.bias if mask is None else b.add(op.bias, mask)


def _unseen_keys(b: Builder, mask: SSAValue) -> SSAValue:
    """A mask [B, S] of keys as what is added, [B, 1, 1, S]."""

    def make() -> SSAValue:
        batch, keys = extents(mask)
        seen = b.reshape(b.cast(mask, i1), (batch, 1, 1, keys))
        sides = [seen, b.real(0.0), b.real(b.hidden)]
        return b.call("Where", sides, extents(seen), f32)

    return b.once(("unseen", mask), make)
