"""Text and vision towers for a sigmoid loss with seeded weights, for tests."""

from __future__ import annotations

from pathlib import Path

from models.recipe.siglip import model, seeded_weights
from models.recipe.tiny import SEED, TINY_SIGLIP


def build(out: Path) -> None:
    """Write the model into `out`."""
    model(TINY_SIGLIP, seeded_weights(TINY_SIGLIP, SEED + 6)).save(out / "model.onnx")
