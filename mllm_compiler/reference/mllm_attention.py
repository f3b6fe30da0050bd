"""Meanings of attention, positions, cache and token choice of the `mllm` dialect."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mllm_compiler.dialects.mllm import (
    AlibiOp,
    AttentionInterface,
    AttentionOp,
    CachedAttentionOp,
    CrossAttnOp,
    KvAppendOp,
    KvViewOp,
    RopeOp,
    TokenGatherOp,
    TokenImportanceOp,
    TopKOp,
)
from mllm_compiler.dialects.types import dtype_of, element_of, tensor_type
from mllm_compiler.reference.entry import one, several
from mllm_compiler.reference.executor import Array, Frame, Meaning
from mllm_compiler.reference.mllm_linear import softmax, wide


def split_heads(x: Array, heads: int) -> Array:
    """[B, T, H*D] -> [B, H, T, D]; a cache layout stays."""
    if x.ndim == 4:
        return x
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def merge_heads(x: Array) -> Array:
    """[B, H, T, D] -> [B, T, H*D]."""
    batch, heads, tokens, size = x.shape
    return x.swapaxes(1, 2).reshape(batch, tokens, heads * size)


def causal_mask(queries: int, keys: int, window: int | None) -> Array:
    """The keys that each query sees: s <= t + (S - T), and within the window."""
    last = np.arange(queries)[:, None] + (keys - queries)
    key = np.arange(keys)[None, :]
    seen = key <= last
    return seen if window is None else seen & (key > last - window)


def attend(
    op: AttentionInterface | CachedAttentionOp,
    q: Array,
    k: Array,
    v: Array,
    masks: Sequence[Array],
) -> Array:
    """softmax(scale q k^T + bias) v where boolean masks exclude and others are added."""
    values = _repeated(op, v)
    return merge_heads(np.matmul(_weights(op, q, k, masks), values)).astype(q.dtype, copy=False)


def _repeated(op: AttentionInterface | CachedAttentionOp, x: Array) -> Array:
    """The keys or values that each head reads: [B, H, S, D]."""
    heads = wide(split_heads(x, op.kv_head_count))
    return np.repeat(heads, op.head_count // op.kv_head_count, axis=1)


def _weights(
    op: AttentionInterface | CachedAttentionOp, q: Array, k: Array, masks: Sequence[Array]
) -> Array:
    queries, keys = wide(split_heads(q, op.head_count)), _repeated(op, k)
    scores: Array = np.matmul(queries, keys.swapaxes(2, 3)) * queries.dtype.type(op.scale_value)
    lowest = np.finfo(scores.dtype).min
    for mask in masks:
        scores = np.where(mask, scores, lowest) if mask.dtype == np.bool_ else scores + mask
    return softmax(scores, -1)


def attention_weights(op: AttentionOp, operands: Sequence[Array]) -> Array:
    """How much of each key's value each query takes: [B, H, T, S]."""
    q, k, _, *sides = operands
    return _weights(op, q, k, masks_of(op, q, k, sides))


def _attention(op: AttentionOp, operands: Sequence[Array], frame: Frame) -> Array:
    return masked(op, *operands)


def masked(
    op: AttentionOp | CachedAttentionOp, q: Array, k: Array, v: Array, *sides: Array
) -> Array:
    """Attention with the masks of an op; key_mask and bias are given where it has them."""
    return attend(op, q, k, v, masks_of(op, q, k, list(sides)))


def masks_of(
    op: AttentionOp | CachedAttentionOp, q: Array, k: Array, sides: list[Array]
) -> list[Array]:
    """What excludes keys (boolean) or is added to scores; key_mask and bias are taken of sides."""
    masks: list[Array] = []
    key_mask = sides.pop(0)[:, None, None, :] != 0 if op.key_mask is not None else None
    if op.bias is not None:
        masks.append(sides.pop(0))
    if key_mask is not None:
        masks.append(key_mask)
    if op.causal:
        keys = k.shape[1] if k.ndim == 3 else k.shape[2]
        window = None if op.window is None else op.window.value.data
        masks.append(causal_mask(q.shape[1], keys, window))
    return masks


def _cross_attn(op: CrossAttnOp, operands: Sequence[Array], frame: Frame) -> Array:
    q, k, v, *sides = operands
    return attend(op, q, k, v, [m[:, None, None, :] != 0 for m in sides])


def _rope(op: RopeOp, operands: Sequence[Array], frame: Frame) -> Array:
    return turned(*operands, heads=op.heads.value.data, interleaved=bool(op.interleaved))


def turned(x: Array, positions: Array, inv_freq: Array, *, heads: int, interleaved: bool) -> Array:
    """The pairs of each head of [B, T, H*D], turned by their positions."""
    real, half = wide(x), len(inv_freq)
    angles = positions[..., None].astype(real.dtype) * inv_freq.astype(real.dtype)
    cos, sin = np.cos(angles)[:, :, None, :], np.sin(angles)[:, :, None, :]
    split = real.reshape(*x.shape[:2], heads, -1)
    rotated, rest = split[..., : 2 * half], split[..., 2 * half :]
    if interleaved:
        a, b = rotated[..., 0::2], rotated[..., 1::2]
        pairs = np.stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(rotated.shape)
    else:
        a, b = rotated[..., :half], rotated[..., half:]
        pairs = np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)
    return np.concatenate([pairs, rest], -1).reshape(x.shape).astype(x.dtype, copy=False)


def alibi_slopes(heads: int) -> Array:
    """The slope of each head."""
    power = 1 << (heads.bit_length() - 1)
    base = [2.0 ** (-8.0 * (h + 1) / power) for h in range(power)]
    above = [2.0 ** (-4.0 * (h + 1) / power) for h in range(0, 2 * (heads - power), 2)]
    return np.array(base + above)


def _alibi(op: AlibiOp, operands: Sequence[Array], frame: Frame) -> Array:
    _, heads, queries, keys = frame.shape(tensor_type(op.result))
    distance = np.arange(keys)[None, :] - (np.arange(queries)[:, None] + (keys - queries))
    bias = alibi_slopes(heads)[None, :, None, None] * distance[None, None]
    return bias.astype(dtype_of(element_of(op.result)))


def _kv_append(op: KvAppendOp, operands: Sequence[Array], frame: Frame) -> Array:
    past, new = operands
    return np.concatenate([past, split_heads(new, op.kv_heads.value.data)], axis=2)


def _kv_view(op: KvViewOp, operands: Sequence[Array], frame: Frame) -> Array:
    pages, table = operands
    batch, heads, length, size = frame.shape(tensor_type(op.result))
    tokens = pages[table.astype(np.int64)].swapaxes(1, 2)
    return tokens.reshape(batch, heads, -1, size)[:, :, :length]


def _token_importance(op: TokenImportanceOp, operands: Sequence[Array], frame: Frame) -> Array:
    q, k = (wide(split_heads(x, op.heads.value.data)) for x in operands)
    scores = np.matmul(q[:, :, :1], k.swapaxes(2, 3)) / np.sqrt(q.dtype.type(q.shape[-1]))
    return softmax(scores, -1).mean(1)[:, 0].astype(operands[0].dtype, copy=False)


def _top_k(op: TopKOp, operands: Sequence[Array], frame: Frame) -> Sequence[Array]:
    axis = op.axis.value.data
    count = frame.shape(tensor_type(op.values))[axis]
    smallest, by_index = bool(op.smallest), bool(op.by_index)
    return top_k(operands[0], count, axis, smallest=smallest, by_index=by_index)


def top_k(
    x: Array, count: int, axis: int, *, smallest: bool, by_index: bool
) -> tuple[Array, Array]:
    """The first elements along an axis, sorted, and their indices (int64); NaN comes last."""
    order = np.argsort(x if smallest else -x, axis=axis, kind="stable")
    indices = np.take(order, np.arange(count), axis=axis)
    if by_index:
        indices = np.sort(indices, axis=axis)
    return np.take_along_axis(x, indices, axis=axis), indices.astype(np.int64)


def _token_gather(op: TokenGatherOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, indices = operands
    return np.take_along_axis(x, indices.astype(np.int64)[..., None], axis=1)


MEANINGS: dict[str, Meaning] = dict(
    [
        one(AttentionOp, _attention),
        one(CrossAttnOp, _cross_attn),
        one(RopeOp, _rope),
        one(AlibiOp, _alibi),
        one(KvAppendOp, _kv_append),
        one(KvViewOp, _kv_view),
        one(TokenImportanceOp, _token_importance),
        several(TopKOp, _top_k),
        one(TokenGatherOp, _token_gather),
    ]
)
"""Op name to meaning."""
