"""A BLOOM of two layers with seeded weights, for tests."""

from __future__ import annotations

from pathlib import Path

from models.recipe.bloom import decoder
from models.recipe.tiny import SEED, TINY_BLOOM
from models.recipe.tiny_text import TEMPLATE, tiny_tokenizer


def build(out: Path) -> None:
    """Write the model into `out`."""
    decoder(TINY_BLOOM, SEED).save(out / "model.onnx")
    tiny_tokenizer().save(str(out / "tokenizer.json"))
    (out / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
