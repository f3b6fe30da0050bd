"""A quantised cache on arrays: what tokens mean by 8 bits and by 4, and which queries read which.

All arrays are in cache layout, [B, Hkv, S, D]. What stands in them are the numbers that codes mean,
as `mllm.cached_attention` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from xdsl.dialects.builtin import i8

from mllm_compiler.reference.executor import Array
from mllm_compiler.reference.mllm_quant import dequantized, quantized

PAGE: Final = 256
"""Tokens of a page, which fall to 4 bits together."""

RECENT: Final = 512
"""Tokens before a page that stay at 8 bits while it is filled."""

GROUP: Final = 32
"""Tokens whose keys share a step for each channel; those of the first group are sinks."""

LEAST, LARGEST = (float(x) for x in (2.0**-24, np.finfo(np.float16).max))
"""The steps that f16 holds."""


def eight_bit_keys(k: Array, channels: Array) -> Array:
    """Keys by codes of 8 bits: divided by the scale [Hkv, D] of their channel, as values are."""
    wide = channels[:, None].astype(k.dtype)
    return eight_bit_values(k / wide) * wide


def eight_bit_values(v: Array) -> Array:
    """Values by codes of 8 bits with one scale for each token and head, as f16 holds it."""
    tops = np.abs(v).max(-1, keepdims=True, initial=0)
    scale = _stored(tops / v.dtype.type(127)).astype(v.dtype)
    return dequantized(quantized(v, scale, None, i8), scale, None, v.dtype)


def half_tokens(x: Array) -> Array:
    """Keys or values as f16 holds them."""
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(x.dtype)


def stored_tokens(k: Array, v: Array, channels: Array | None) -> tuple[Array, Array]:
    """What new keys and values mean when stored: as codes of 8 bits, or as f16 without scales."""
    if channels is None:
        return half_tokens(k), half_tokens(v)
    return eight_bit_keys(k, channels), eight_bit_values(v)


def _stored(step: Array) -> Array:
    return step.clip(LEAST, LARGEST).astype(np.float16)


def four_bit_keys(k: Array) -> Array:
    """Keys by codes of 4 bits, in groups of 32 tokens for each head and channel."""
    groups = k.reshape(*k.shape[:2], -1, GROUP, k.shape[3])
    return _four_bits(groups, axis=3).reshape(k.shape)


def four_bit_values(v: Array) -> Array:
    """Values by codes of 4 bits, for each token and head."""
    return _four_bits(v, axis=-1)


def _four_bits(x: Array, axis: int) -> Array:
    """The nearest of 16 numbers from the least to the largest along an axis."""
    wide = x.astype(np.result_type(x.dtype, np.float32), copy=False)
    low, high = wide.min(axis, keepdims=True), wide.max(axis, keepdims=True)
    step = _stored((high - low) / 15).astype(wide.dtype)
    low = low.clip(-LARGEST, LARGEST).astype(np.float16).astype(wide.dtype)
    codes = np.rint((wide - low) / step).clip(0, 15)
    return (codes * step + low).astype(x.dtype)


def demotions(past: int, tokens: int) -> Iterator[tuple[slice, int]]:
    """The new tokens page by page, and before which position their queries read 4 bits."""
    start = 0
    while start < max(tokens, 1):
        page = (past + start) // PAGE
        stop = min(tokens, (page + 1) * PAGE - past)
        yield slice(start, stop), page * PAGE - RECENT
        start = max(stop, start + 1)


def by_page(
    q: Array, keys: Array, values: Array, attend: Callable[[slice, Array, Array], Array]
) -> Array:
    """Attention of the queries of one page at a time, which read the same tokens by 4 bits."""
    made: list[Array] = []
    past = keys.shape[2] - q.shape[1]
    for rows, old in demotions(past, q.shape[1]):
        read = (
            with_four_bits(keys, four_bit_keys, old),
            with_four_bits(values, four_bit_values, old),
        )
        made.append(attend(rows, *read))
    return np.concatenate(made, 1)


def with_four_bits(x: Array, four_bits: Callable[[Array], Array], old: int) -> Array:
    """Keys or values of which those before a position, but not the sinks, have 4 bits."""
    if old <= GROUP:
        return x
    parts = x[:, :, :GROUP], four_bits(x[:, :, GROUP:old]), x[:, :, old:]
    return np.concatenate(parts, 2)
