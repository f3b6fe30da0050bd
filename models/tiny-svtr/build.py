"""A recogniser of text in images with seeded weights, for tests."""

from __future__ import annotations

from pathlib import Path

from models.recipe.svtr import recogniser, seeded_weights
from models.recipe.tiny import SEED, TINY_SVTR


def build(out: Path) -> None:
    """Write the model into `out`."""
    recogniser(TINY_SVTR, seeded_weights(TINY_SVTR, SEED + 9)).save(out / "model.onnx")
