"""Contrastive text and vision towers with seeded weights, for tests."""

from __future__ import annotations

from pathlib import Path

from models.recipe.clip import model, seeded_weights
from models.recipe.tiny import SEED, TINY_CLIP


def build(out: Path) -> None:
    """Write the model into `out`."""
    model(TINY_CLIP, seeded_weights(TINY_CLIP, SEED + 5)).save(out / "model.onnx")
