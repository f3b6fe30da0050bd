"""A Mamba of two layers with seeded weights, for tests."""

from __future__ import annotations

from pathlib import Path

from models.recipe.mamba import decoder
from models.recipe.tiny import SEED, TINY_MAMBA


def build(out: Path) -> None:
    """Write the model into `out`."""
    decoder(TINY_MAMBA, SEED).save(out / "model.onnx")
