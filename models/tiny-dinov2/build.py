"""A vision encoder with registers and interpolated positions, seeded, for tests."""

from __future__ import annotations

from pathlib import Path

from models.recipe.dinov2 import seeded_weights, vision_encoder
from models.recipe.tiny import SEED, TINY_DINOV2


def build(out: Path) -> None:
    """Write the model into `out`."""
    weights = seeded_weights(TINY_DINOV2, SEED + 7)
    vision_encoder(TINY_DINOV2, weights).save(out / "model.onnx")
