"""Whisper-base, 72.6 M parameters, float32: three graphs and `tokenizer.json`."""

from __future__ import annotations

from pathlib import Path

from models.recipe.ct2_weights import whisper_base
from models.recipe.whisper import decoder, decoder_with_past, encoder


def build(out: Path) -> None:
    """Write the model into `out`."""
    speech = whisper_base()
    config = speech.config
    encoder(config, speech.encoder).save(out / "encoder_model.onnx", external=True)
    decoder(config, speech.decoder).save(out / "decoder_model.onnx", external=True)
    later = decoder_with_past(config, speech.decoder)
    later.save(out / "decoder_with_past_model.onnx", external=True)
    (out / "tokenizer.json").write_bytes(speech.tokenizer)
