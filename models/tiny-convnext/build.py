"""A convolutional image classifier with seeded weights, for tests."""

from __future__ import annotations

from pathlib import Path

from models.recipe.convnext import classifier, seeded_weights
from models.recipe.tiny import SEED, TINY_CONVNEXT


def build(out: Path) -> None:
    """Write the model into `out`."""
    classifier(TINY_CONVNEXT, seeded_weights(TINY_CONVNEXT, SEED + 8)).save(out / "model.onnx")
