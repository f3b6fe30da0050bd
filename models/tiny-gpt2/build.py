"""A GPT-2 of two layers with seeded weights, for tests."""

from __future__ import annotations

from pathlib import Path

from models.recipe.gpt2 import decoder
from models.recipe.tiny import SEED, TINY_GPT2
from models.recipe.tiny_text import TEMPLATE, tiny_tokenizer


def build(out: Path) -> None:
    """Write the model into `out`."""
    decoder(TINY_GPT2, SEED).save(out / "model.onnx")
    tiny_tokenizer().save(str(out / "tokenizer.json"))
    (out / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
