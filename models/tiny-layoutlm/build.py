"""A LayoutLM of two layers with seeded weights, for tests."""

from __future__ import annotations

from pathlib import Path

from models.recipe.bert import encoder
from models.recipe.tiny import SEED, TINY_LAYOUTLM


def build(out: Path) -> None:
    """Write the model into `out`."""
    encoder(TINY_LAYOUTLM, SEED).save(out / "model.onnx")
