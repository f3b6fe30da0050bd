"""A BERT of two layers with seeded weights, for tests."""

from __future__ import annotations

from pathlib import Path

from models.recipe.bert import encoder
from models.recipe.tiny import SEED, TINY_BERT


def build(out: Path) -> None:
    """Write the model into `out`."""
    encoder(TINY_BERT, SEED).save(out / "model.onnx")
