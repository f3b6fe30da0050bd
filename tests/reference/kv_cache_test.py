"""A quantised cache: against attention written query by query, and one call against many."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import f32

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.dims import tensor_of
from tests.reference.single_op import real, run

Floats = NDArray[np.float32]
HEADS, KV_HEADS, SIZE, SCALE = 4, 2, 8, 0.4
K_SCALE = np.linspace(0.5, 3, KV_HEADS * SIZE).astype(np.float16).reshape(KV_HEADS, SIZE)


def attend(bits: int, q: Floats, k: Floats, v: Floats, past: tuple[Floats, Floats]) -> list[Floats]:
    """Result and presents of tokens behind a past."""
    keys = past[0].shape[2] + q.shape[1]
    present = tensor_of(f32, (1, KV_HEADS, keys, SIZE))
    return run(
        lambda q, k, v, past_k, past_v, scale: mllm.CachedAttentionOp(
            *(q, k, v, past_k, past_v),
            heads=HEADS,
            kv_heads=KV_HEADS,
            scale=SCALE,
            causal=True,
            results=[q.type, present, present],
            k_scale=scale,
            cache_bits=bits,
        ),
        *(q, k, v, *past, K_SCALE),
    )


def tokens(count: int) -> tuple[Floats, Floats, Floats]:
    """Queries, keys and values."""
    return tuple(real(1, count, heads * SIZE) for heads in (HEADS, KV_HEADS, KV_HEADS))


def past_of(count: int) -> tuple[Floats, Floats]:
    return real(1, KV_HEADS, count, SIZE), real(1, KV_HEADS, count, SIZE)


def by_eight(k: Floats, v: Floats, head: int) -> tuple[Floats, Floats]:
    """A token's key and value of a head by codes of 8 bits."""
    channels = K_SCALE[head].astype(np.float32)
    found: list[Floats] = []
    for x in (k / channels, v):
        top = np.float32(np.float16(np.abs(x).max() / np.float32(127)))
        found.append(np.round(x / top) * top)
    return found[0] * channels, found[1]


def by_four(x: Floats) -> Floats:
    """Numbers that share a least one and a step."""
    least = np.float64(np.float16(x.min()))
    step = np.float64(np.float16((x.max() - x.min()) / 15))
    return np.clip(np.round((x - least) / step), 0, 15) * step + least


def plainly(bits: int, q: Floats, keys: Floats, values: Floats) -> Floats:
    """One query after the other, one token of the cache after the other."""
    count, size = q.shape[1], keys.shape[2]
    result = np.zeros((count, HEADS, SIZE))
    for row in range(count):
        position = size - count + row
        old = 256 * (position // 256) - 512 if bits == 4 else 0
        for head in range(HEADS):
            of = head // (HEADS // KV_HEADS)
            scores, seen = np.zeros(position + 1), np.zeros((position + 1, SIZE))
            for at in range(position + 1):
                key, value = keys[0, of, at], values[0, of, at]
                first = at - at % 32
                if first >= 32 and first + 32 <= old:
                    group = keys[0, of, first : first + 32]
                    key = np.array([by_four(group[:, c])[at % 32] for c in range(SIZE)])
                    value = by_four(value)
                scores[at] = SCALE * q[0, row, head * SIZE : (head + 1) * SIZE] @ key
                seen[at] = value
            weights = np.exp(scores - scores.max())
            result[row, head] = weights / weights.sum() @ seen
    return result.reshape(1, count, HEADS * SIZE)


@pytest.mark.parametrize(("bits", "past"), [(8, 5), (4, 0), (4, 766), (4, 1022)])
def test_a_query_reads_what_codes_mean(bits: int, past: int) -> None:
    """Behind 766 and 1,022 tokens, queries of two pages read other tokens by 4 bits."""
    (q, k, v), before = tokens(4), past_of(past)
    y, keys, values = attend(bits, q, k, v, before)
    np.testing.assert_array_equal(keys[:, :, :past], before[0])
    np.testing.assert_array_equal(values[:, :, :past], before[1])
    for row in range(4):
        for head in range(KV_HEADS):
            part = slice(head * SIZE, (head + 1) * SIZE)
            key, value = by_eight(k[0, row, part], v[0, row, part], head)
            np.testing.assert_array_equal(keys[0, head, past + row], key)
            np.testing.assert_array_equal(values[0, head, past + row], value)
    np.testing.assert_allclose(y, plainly(bits, q, keys, values), rtol=1e-5, atol=2e-6)


def test_four_bits_are_read_behind_the_third_page_alone() -> None:
    (q, k, v), before = tokens(4), past_of(766)
    eight, four = (attend(bits, q, k, v, before)[0] for bits in (8, 4))
    np.testing.assert_allclose(four[:, :2], eight[:, :2], rtol=1e-5, atol=2e-6)
    assert np.abs(four[:, 2:] - eight[:, 2:]).max() > 1e-3


@pytest.mark.parametrize("bits", [8, 4])
def test_the_cut_into_calls_does_not_matter(bits: int) -> None:
    q, k, v = tokens(1100)
    whole = attend(bits, q, k, v, past_of(0))
    parts, past = list[Floats](), past_of(0)
    for start, stop in ((0, 1), (1, 300), (300, 769), (769, 770), (770, 1025), (1025, 1100)):
        y, *past = attend(bits, *(x[:, start:stop] for x in (q, k, v)), past)
        parts.append(y)
    np.testing.assert_array_equal(past, whole[1:])
    np.testing.assert_allclose(np.concatenate(parts, 1), whole[0], rtol=1e-4, atol=2e-6)


def test_small_and_large_values_have_scales_that_f16_holds() -> None:
    q, k, v = tokens(3)
    v = v * np.array([0, 1e-9, 1e8], np.float32)[:, None]
    _, _, values = attend(8, q, k, v, past_of(0))
    assert (values[0, :, 0] == 0).all()
    np.testing.assert_array_equal(np.abs(values[0, :, 1]), 0)
    assert np.isfinite(values).all()
    assert np.abs(values).max() <= 128 * 65504
