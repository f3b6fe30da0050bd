"""A speech recogniser with a convolutional front end and seeded weights, for tests."""

from __future__ import annotations

from pathlib import Path

from models.recipe.tiny import SEED, TINY_WAV2VEC2
from models.recipe.wav2vec2 import recogniser, seeded_weights


def build(out: Path) -> None:
    """Write the model into `out`."""
    recogniser(TINY_WAV2VEC2, seeded_weights(TINY_WAV2VEC2, SEED + 10)).save(out / "model.onnx")
