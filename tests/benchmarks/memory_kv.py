"""What the cache of a conversation takes: a part of `memory.py`.

`kv4_page_ratio` is a demoted page as a part of the same page in f16, scales counted, the larger one
of heads of 64 and of 128 channels. `kv_..._mb` is what 2,048 tokens of SmolLM2-135M take in pages
of each format; with 4 bits, 512 tokens and the first 32 keep 8.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.runtime.internals import Internals
from tests.runtime.kv_layout_test import (
    AS_FLOATS,
    AS_HALVES,
    BY_4,
    BY_8,
    DEMOTED,
    NATIVE,
    SINKS,
    Pages,
)

LAYERS, KV_HEADS, DIM, PAGES = 30, 3, 64, 8


def figures() -> dict[str, float]:
    """Every figure of this area."""
    with tempfile.TemporaryDirectory() as scratch:
        internals = Internals(Path(scratch))
        ratio = max(_ratio(internals, dim) for dim in (64, 128))
        sizes = {form: _pages(internals, form).bytes for form in (AS_FLOATS, AS_HALVES, BY_8, BY_4)}
    four = sizes[BY_4]
    pages = {
        "f32": PAGES * sizes[AS_FLOATS][NATIVE],
        "f16": PAGES * sizes[AS_HALVES][NATIVE],
        "kv8": PAGES * sizes[BY_8][NATIVE],
        "kv4": four[SINKS] + (PAGES - 3) * four[DEMOTED] + 2 * four[NATIVE],
    }
    return {"kv4_page_ratio": ratio} | {f"kv_{name}_mb": n / 1e6 for name, n in pages.items()}


def _ratio(internals: Internals, dim: int) -> float:
    low, halves = (Pages(internals, dim, [form]).bytes for form in (BY_4, AS_HALVES))
    return low[DEMOTED] / halves[NATIVE]


def _pages(internals: Internals, form: int) -> Pages:
    return Pages(internals, DIM, [form] * LAYERS, heads=KV_HEADS)
