"""The meanings of attention, positions, caches and token choice against ONNX's reference."""

from __future__ import annotations

import numpy as np
import pytest

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.types import ELEMENTS
from tests.reference.single_op import RNG, close, real, run, run_constant, standard


@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(kv_heads: int, causal: bool) -> None:
    q, k, v = real(2, 3, 32), real(2, 3, 8 * kv_heads), real(2, 3, 8 * kv_heads)
    shape = {"heads": 4, "kv_heads": kv_heads, "scale": 0.3}
    theirs = standard(
        "Attention",
        [q, k, v],
        q_num_heads=4,
        kv_num_heads=kv_heads,
        scale=0.3,
        is_causal=int(causal),
    )[0]
    close(
        run(lambda q, k, v: mllm.AttentionOp(q, k, v, causal=causal, **shape), q, k, v)[0], theirs
    )
    if not causal:
        close(run(lambda q, k, v: mllm.CrossAttnOp(q, k, v, **shape), q, k, v)[0], theirs)


def test_attention_with_cache_bias_and_key_mask() -> None:
    q, k, v = real(2, 3, 32), real(2, 2, 7, 8), real(2, 2, 7, 8)
    mask, bias = np.array([[1] * 7, [0, 0, 1, 1, 1, 1, 1]]), real(1, 4, 3, 7)
    seen = np.arange(7)[None] <= np.arange(3)[:, None] + 4
    allowed = seen[None, None] & (mask[:, None, None, :] != 0)
    total = np.where(allowed, bias, np.float32(-1e30)).astype(np.float32)
    heads = q.reshape(2, 3, 4, 8).swapaxes(1, 2).copy()
    theirs = standard("Attention", [heads, k, v, total], scale=0.5)[0]
    ours = run(
        lambda q, k, v, m, b: mllm.AttentionOp(
            q, k, v, heads=4, kv_heads=2, scale=0.5, causal=True, key_mask=m, bias=b
        ),
        *(q, k, v, mask, bias),
    )[0]
    close(ours, theirs.swapaxes(1, 2).reshape(2, 3, 32))


def test_a_window_leaves_the_nearest_keys() -> None:
    q, k, v = real(1, 5, 8), real(1, 5, 8), real(1, 5, 8)
    index = np.arange(5)
    seen = (index[None] <= index[:, None]) & (index[None] > index[:, None] - 2)
    theirs = standard("Attention", [q, k, v, seen], q_num_heads=1, kv_num_heads=1, scale=1.0)[0]
    ours = run(
        lambda q, k, v: mllm.AttentionOp(
            q, k, v, heads=1, kv_heads=1, scale=1.0, causal=True, window=2
        ),
        *(q, k, v),
    )[0]
    close(ours, theirs)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rotary", [8, 4])
def test_rope(interleaved: bool, rotary: int) -> None:
    x, positions = real(2, 3, 32), RNG.integers(0, 100, (2, 3))
    inv_freq = (1e4 ** -(np.arange(rotary // 2) / (rotary // 2))).astype(np.float32)
    angles = np.arange(100, dtype=np.float32)[:, None] * inv_freq
    theirs = standard(
        "RotaryEmbedding",
        [x, np.cos(angles), np.sin(angles), positions],
        interleaved=int(interleaved),
        num_heads=4,
        rotary_embedding_dim=0 if rotary == 8 else rotary,
    )[0]
    ours = run(
        lambda x, p, f: mllm.RopeOp(x, p, f, heads=4, interleaved=interleaved),
        *(x, positions, inv_freq),
    )[0]
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_alibi_falls_with_distance_from_the_query() -> None:
    block = mllm.AlibiOp(ELEMENTS[np.dtype(np.float32)], Dim.const(2), Dim.const(4), heads=8)
    ours = run_constant(block)
    assert ours.shape == (1, 8, 2, 4)
    np.testing.assert_allclose(ours[0, 0], [[-1.0, -0.5, 0.0, 0.5], [-1.5, -1.0, -0.5, 0.0]])
    np.testing.assert_allclose(ours[0, :, 1, 2], [-(2.0 ** -(h + 1)) for h in range(8)])


def test_feed_forward_blocks() -> None:
    x, gate, up, down = real(2, 3, 8), real(16, 8), real(16, 8), real(8, 16)
    b1, b2 = real(16), real(8)
    g = x @ gate.T
    theirs = (g / (1 + np.exp(-g)) * (x @ up.T)) @ down.T
    ours = run(lambda *v: mllm.GatedMlpOp(mllm.Activation.SILU, *v), x, gate, up, down)[0]
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    theirs = np.maximum(x @ up.T + b1, 0) @ down.T + b2
    ours = run(
        lambda x, u, d, b, c: mllm.MlpOp(mllm.Activation.RELU, x, u, d, b1=b, b2=c),
        *(x, up, down, b1, b2),
    )[0]
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_cache() -> None:
    past, new = real(2, 3, 5, 4), real(2, 2, 12)
    theirs = np.concatenate([past, new.reshape(2, 2, 3, 4).swapaxes(1, 2)], 2)
    close(run(lambda p, n: mllm.KvAppendOp(p, n, kv_heads=3), past, new)[0], theirs)
    pages, table = real(6, 3, 4, 2), np.array([[5, 0, 3], [1, 2, 4]])
    ours = run(lambda p, t: mllm.KvViewOp(p, t, 10), pages, table)[0]
    for batch, token in np.ndindex(2, 10):
        theirs = pages[table[batch, token // 4], :, token % 4]
        np.testing.assert_array_equal(ours[batch, :, token], theirs)


def test_choice_of_tokens() -> None:
    x = real(2, 9)
    ours = run(lambda x: mllm.TopKOp(x, 3, 1), x)
    theirs = standard("TopK", [x, np.array([3])], outputs=2, axis=1)
    close(ours[0], theirs[0])
    close(ours[1], theirs[1])
    ordered = run(lambda x: mllm.TopKOp(x, 3, 1, by_index=True), x)[1]
    np.testing.assert_array_equal(ordered, np.sort(theirs[1], 1))
    tokens = real(2, 9, 4)
    kept = run(mllm.TokenGatherOp, tokens, ordered)[0]
    np.testing.assert_array_equal(kept[1, 2], tokens[1, ordered[1, 2]])
    score = run(lambda q: mllm.TokenImportanceOp(q, q, heads=2), tokens)[0]
    np.testing.assert_allclose(score.sum(1), np.ones(2), rtol=1e-5)
