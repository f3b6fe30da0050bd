"""A Whisper of two layers with seeded weights, for tests."""

from __future__ import annotations

from pathlib import Path

from models.recipe.tiny import SEED, TINY_WHISPER
from models.recipe.tiny_text import tiny_tokenizer
from models.recipe.whisper import decoder, decoder_with_past, encoder
from models.recipe.whisper_seeded import seeded_decoder, seeded_encoder


def build(out: Path) -> None:
    """Write the model into `out`."""
    encoder(TINY_WHISPER, seeded_encoder(TINY_WHISPER, SEED)).save(out / "encoder_model.onnx")
    weights = seeded_decoder(TINY_WHISPER, SEED + 1)
    decoder(TINY_WHISPER, weights).save(out / "decoder_model.onnx")
    decoder_with_past(TINY_WHISPER, weights).save(out / "decoder_with_past_model.onnx")
    tiny_tokenizer().save(str(out / "tokenizer.json"))
