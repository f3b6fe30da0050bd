"""Meanings of the fused ops of the `mllm` dialect: those of their parts, one after another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mllm_compiler.dialects.mllm import (
    ActivatedLinearOp,
    CachedAttentionOp,
    NormGatedMlpOp,
    NormKind,
    QkvOp,
    ResidualNormOp,
    UnaryKind,
)
from mllm_compiler.dialects.mllm.quant import value_of
from mllm_compiler.dialects.types import tensor_type
from mllm_compiler.reference.entry import one, several
from mllm_compiler.reference.executor import Array, Frame, Meaning
from mllm_compiler.reference.kv_cache import by_page, stored_tokens
from mllm_compiler.reference.mllm_attention import attend, masked, masks_of, split_heads, turned
from mllm_compiler.reference.mllm_elementwise import apply_unary
from mllm_compiler.reference.mllm_linear import gated_mlp, layer_norm, linear, rms_norm


def _qkv(op: QkvOp, operands: Sequence[Array], frame: Frame) -> Sequence[Array]:
    x, weight, *rest = operands
    bias = rest.pop(0) if op.bias is not None else None
    widths = [frame.shape(tensor_type(part))[2] for part in op.results]
    q, k, v = np.split(linear(x, weight, bias), np.cumsum(widths)[:2], axis=2)
    if rest:
        paired = bool(op.interleaved)
        q = turned(q, *rest, heads=op.head_count, interleaved=paired)
        k = turned(k, *rest, heads=op.kv_head_count, interleaved=paired)
    return [np.ascontiguousarray(part) for part in (q, k, v)]


def _activated_linear(op: ActivatedLinearOp, operands: Sequence[Array], frame: Frame) -> Array:
    return apply_unary(UnaryKind(op.activation.data), linear(*operands))


def _residual_norm(op: ResidualNormOp, operands: Sequence[Array], frame: Frame) -> Sequence[Array]:
    x, residual, *sides = operands
    total = x + residual
    return total, _normed(op, total, sides)


def _norm_gated_mlp(op: NormGatedMlpOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, gate, up, down, *sides = operands
    return gated_mlp(UnaryKind(op.activation.data), _normed(op, x, sides), gate, up, down)


def _normed(op: ResidualNormOp | NormGatedMlpOp, x: Array, sides: list[Array]) -> Array:
    weight = sides.pop(0) if op.weight is not None else None
    bias = sides.pop(0) if op.bias is not None else None
    if op.kind.data is NormKind.LAYER or weight is None:
        return layer_norm(x, weight, bias, op.epsilon.value.data)
    return rms_norm(x, weight, op.epsilon.value.data)


def _cached_attention(
    op: CachedAttentionOp, operands: Sequence[Array], frame: Frame
) -> Sequence[Array]:
    q, k, v, past_k, past_v, *sides = operands
    k, v = (split_heads(new, op.kv_head_count) for new in (k, v))
    if op.cache_bits is not None:
        k, v = stored_tokens(k, v, None if op.k_scale is None else sides.pop())
    keys, values = np.concatenate([past_k, k], 2), np.concatenate([past_v, v], 2)
    if value_of(op.cache_bits) == 4:
        masks = masks_of(op, q, keys, sides)
        y = by_page(q, keys, values, lambda rows, k, v: _attend_rows(op, q, masks, rows, k, v))
        return y, keys, values
    return masked(op, q, keys, values, *sides), keys, values


def _attend_rows(
    op: CachedAttentionOp, q: Array, masks: Sequence[Array], rows: slice, keys: Array, values: Array
) -> Array:
    """Some queries, with the rows of masks that are theirs."""
    own = [mask[..., rows, :] if mask.shape[-2] > 1 else mask for mask in masks]
    return attend(op, q[:, rows], keys, values, own)


MEANINGS: dict[str, Meaning] = dict(
    [
        one(ActivatedLinearOp, _activated_linear),
        several(ResidualNormOp, _residual_norm),
        one(NormGatedMlpOp, _norm_gated_mlp),
        several(QkvOp, _qkv),
        several(CachedAttentionOp, _cached_attention),
    ]
)
"""Op name to meaning."""
