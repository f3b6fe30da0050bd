"""Attention over contiguous tensors against NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.runtime.cases import F32, Case, f32, f64, normal, rng
from tests.runtime.program_writer import Array, ProgramWriter, dtype_of


@dataclass(frozen=True)
class Shape:
    """Extents and switches of one attention."""

    batch: int
    tokens: int
    keys: int
    heads: int
    kv_heads: int
    dim: int
    v_dim: int = 0
    causal: int = 0
    window: int = 0
    masked: bool = False
    bias: tuple[int, ...] = ()
    cache_layout: bool = False


SHAPES = [
    Shape(1, 1, 1, 1, 1, 4),
    Shape(1, 1, 300, 9, 3, 64),
    Shape(2, 3, 5, 4, 2, 8, causal=1),
    Shape(1, 257, 257, 6, 6, 64),
    Shape(1, 70, 70, 9, 3, 64, causal=1),
    Shape(1, 40, 100, 3, 1, 16, causal=1),
    Shape(1, 100, 40, 2, 2, 16, causal=1),
    Shape(1, 4, 2, 2, 2, 8, causal=1),
    Shape(1, 50, 50, 2, 2, 20, causal=1, window=7),
    Shape(1, 2, 50, 2, 2, 20, causal=1, window=7),
    Shape(2, 30, 33, 4, 2, 24, v_dim=17, masked=True),
    Shape(2, 1, 33, 4, 2, 24, masked=True),
    Shape(2, 30, 33, 4, 4, 32, bias=(2, 4, 30, 33)),
    Shape(1, 30, 33, 4, 4, 32, bias=(1, 1, 30, 33)),
    Shape(1, 30, 33, 4, 1, 32, bias=(4, 1, 33)),
    Shape(1, 30, 33, 4, 1, 32, bias=(1,)),
    Shape(2, 2, 9, 4, 4, 32, bias=(4, 2, 9)),
    Shape(2, 20, 21, 4, 2, 48, cache_layout=True, causal=1, masked=True),
    Shape(2, 1, 21, 4, 2, 48, cache_layout=True),
    Shape(1, 0, 4, 2, 2, 8),
    Shape(1, 3, 0, 2, 2, 8),
    Shape(1, 20, 0, 2, 2, 8),
    Shape(1, 130, 130, 2, 1, 256, causal=1),
    Shape(1, 30, 30, 1, 1, 1500),
]


def attention_of(
    q: F32, k: F32, v: F32, s: Shape, scale: float, mask: Array | None, bias: F32 | None
) -> F32:
    """k and v as [B, Hkv, S, D]; a query that sees no key gives the mean of all values."""
    batch, tokens, _ = q.shape
    group = s.heads // s.kv_heads
    queries = f64(q).reshape(batch, tokens, s.heads, s.dim).transpose(0, 2, 1, 3)
    keys, values = (np.repeat(f64(x), group, axis=1) for x in (k, v))
    scores = queries @ np.swapaxes(keys, -1, -2) * np.float32(scale)
    if bias is not None:
        scores = scores + f64(bias)
    allowed = np.ones(scores.shape, bool)
    query, key = np.ogrid[:tokens, : s.keys]
    if s.causal:
        allowed &= key <= query + s.keys - tokens
    if s.window:
        allowed &= key > query + s.keys - tokens - s.window
    if mask is not None:
        allowed &= (mask != 0)[:, None, None, :]
    scores = np.where(allowed, scores, -np.inf)
    scores = np.where(allowed.any(-1, keepdims=True), scores, 0.0)
    largest = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isfinite(largest), largest, 0))
    total = weights.sum(-1, keepdims=True)
    out: NDArray[np.float64] = weights / np.where(total > 0, total, 1) @ values
    return f32(out.transpose(0, 2, 1, 3).reshape(batch, tokens, s.heads * v.shape[-1]))


def attention() -> Iterator[Case]:
    for i, s in enumerate(SHAPES):
        v_dim = s.v_dim or s.dim
        q = normal(s.batch, s.tokens, s.heads * s.dim, seed=(i, "q"))
        k = normal(s.batch, s.kv_heads, s.keys, s.dim, seed=(i, "k"))
        v = normal(s.batch, s.kv_heads, s.keys, v_dim, seed=(i, "v"))
        mask = (rng(i).random((s.batch, s.keys)) > 0.3).astype(np.int64) if s.masked else None
        bias = normal(*s.bias, seed=(i, "bias")) if s.bias else None
        scale = 1.0 / np.sqrt(s.dim)
        y = attention_of(q, k, v, s, scale, mask, bias)
        given = (k, v) if s.cache_layout else tuple(tokens_major(x) for x in (k, v))
        params = (s.heads, s.kv_heads, float(scale), s.causal, s.window)
        yield Case(f"attention-{i}", "f32_attention", (q, *given, mask, bias), params, y, atol=3e-6)


@dataclass(frozen=True)
class PagedCase(Case):
    """Operands q, k, v and key_mask: k and v go into the cache, q attends to them there."""

    kv_heads: int = 1
    page_tokens: int = 16

    def program(self) -> tuple[bytes, bytes]:
        writer = ProgramWriter()
        ids: list[int | None] = [
            None if x is None else writer.io(f"in{i}", dtype_of(x), x.shape)
            for i, x in enumerate(self.operands)
        ]
        q, k, v, mask = ids
        y = writer.io("y", "f32", self.expected.shape)
        writer.stage("f32_kv_store", [k, v], [], [1, self.kv_heads])
        writer.stage("f32_paged_attention", [q, mask, None], [y], [1, *self.params])
        _, tokens, width = np.shape(self.operands[1])  # type: ignore[arg-type]
        cache = writer.cache(
            "kv", layers=2, kv_heads=self.kv_heads, head_dim=width // self.kv_heads,
            tokens=max(tokens, 1), page_tokens=self.page_tokens,
        )  # fmt: skip
        writer.entry("main", inputs=[i for i in ids if i is not None], outputs=[y], cache=cache)
        return writer.finish()


def paged() -> Iterator[Case]:
    for i, (page, s) in enumerate((
        (16, Shape(1, 1, 1, 3, 3, 8)),
        (16, Shape(1, 40, 40, 4, 2, 16, causal=1, masked=True)),
        (16, Shape(1, 1, 40, 4, 2, 16, causal=1)),
        (7, Shape(1, 100, 100, 3, 1, 20, causal=1, window=30)),
        (256, Shape(1, 70, 300, 3, 1, 64, causal=1)),
    )):  # fmt: skip
        q = normal(1, s.tokens, s.heads * s.dim, seed=(i, "pq"))
        k, v = (normal(1, s.kv_heads, s.keys, s.dim, seed=(i, kind)) for kind in ("pk", "pv"))
        mask = (rng(i, "m").random((1, s.keys)) > 0.3).astype(np.int64) if s.masked else None
        y = attention_of(q, k, v, s, 0.25, mask, None)
        operands = (q, tokens_major(k), tokens_major(v), mask)
        params = (s.heads, s.kv_heads, 0.25, s.causal, s.window)
        yield PagedCase(f"paged-{i}", "f32_paged_attention", operands, params, y, atol=3e-6,
                        kv_heads=s.kv_heads, page_tokens=page)  # fmt: skip


def tokens_major(x: F32) -> F32:
    """[B, H, S, D] as [B, S, H * D]."""
    batch, heads, tokens, dim = x.shape
    return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(batch, tokens, heads * dim)
