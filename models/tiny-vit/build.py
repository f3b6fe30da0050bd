"""A vision encoder of two layers with seeded weights, for tests."""

from __future__ import annotations

from pathlib import Path

from models.recipe.dinov2 import seeded_weights, vision_encoder
from models.recipe.tiny import SEED, TINY_VIT


def build(out: Path) -> None:
    """Write the model into `out`."""
    weights = seeded_weights(TINY_VIT, SEED + 1)
    vision_encoder(TINY_VIT, weights).save(out / "vision_encoder.onnx")
