"""What codes in the cache cost SmolLM2-135M in fp32: the increase of perplexity, by the reference.

Scored are the first two windows of 2,048 tokens of `pydoc_topics.txt`, on the predictions beyond
position 1,024 alone, so that pages that fell to 4 bits are read; ids without a start token.
Calibrated is on the other texts.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mllm_compiler.generation.model import NumpyModel
from tests.benchmarks.quality_smollm2 import (
    MODEL,
    RECIPES,
    TEXTS,
    calibration,
    compiled,
    logits_of,
)

WINDOWS, WINDOW, SCORED_FROM = 2, 2048, 1024


def figures() -> dict[str, float]:
    """The perplexity without codes, and how much 8 and 4 bits add."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        data = calibration(folder / "data")
        real = perplexity(compiled(MODEL, None, data, folder, longest=WINDOW))
        found = {"kv_fp32_ppl": real}
        for bits in (8, 4):
            recipe = RECIPES / f"smollm2_kv{bits}.toml"
            model = compiled(MODEL, recipe, data, folder, longest=WINDOW)
            found[f"kv{bits}_delta_ppl"] = perplexity(model) - real
    return found


def perplexity(model: NumpyModel) -> float:
    """Of the second half of each window."""
    text = (TEXTS / "pydoc_topics.txt").read_text(encoding="utf-8")
    ids = model.tokenizer().encode(text, add_special_tokens=False).ids
    losses = [_losses(model, np.array(ids[i * WINDOW :][:WINDOW])) for i in range(WINDOWS)]
    return float(np.exp(np.concatenate(losses).mean()))


def _losses(model: NumpyModel, window: NDArray[np.int64]) -> NDArray[np.float64]:
    """-log p of each token beyond the position that scoring begins at."""
    logits = logits_of(model, window)[SCORED_FROM:-1].astype(np.float64)
    logits -= logits.max(-1, keepdims=True)
    targets = window[SCORED_FROM + 1 :]
    return np.log(np.exp(logits).sum(-1)) - logits[np.arange(len(targets)), targets]
