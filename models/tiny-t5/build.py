"""A T5 of two layers with seeded weights, for tests."""

from __future__ import annotations

from pathlib import Path

from models.recipe.t5 import decoder, encoder
from models.recipe.tiny import SEED, TINY_T5
from models.recipe.tiny_text import tiny_tokenizer


def build(out: Path) -> None:
    """Write the model into `out`."""
    encoder(TINY_T5, SEED).save(out / "encoder_model.onnx")
    decoder(TINY_T5, SEED, with_past=False).save(out / "decoder_model.onnx")
    decoder(TINY_T5, SEED, with_past=True).save(out / "decoder_with_past_model.onnx")
    tiny_tokenizer().save(str(out / "tokenizer.json"))
