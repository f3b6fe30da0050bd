"""A Llama of two layers that looks at an image, with seeded weights, for tests."""

from __future__ import annotations

from pathlib import Path

from models.recipe import dinov2, flamingo
from models.recipe.tiny import SEED, TINY_FLAMINGO, TINY_VIT
from models.recipe.tiny_text import TEMPLATE, tiny_tokenizer


def build(out: Path) -> None:
    """Write the model into `out`."""
    eyes = dinov2.vision_encoder(TINY_VIT, dinov2.seeded_weights(TINY_VIT, SEED + 1))
    eyes.save(out / "vision_encoder.onnx")
    flamingo.decoder(TINY_FLAMINGO, SEED).save(out / "decoder.onnx")
    tiny_tokenizer().save(str(out / "tokenizer.json"))
    (out / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
