"""SmolLM2-135M-Instruct, float32: `model.onnx`, `tokenizer.json`, `chat_template.jinja`."""

from __future__ import annotations

from pathlib import Path

from models.recipe.gguf_weights import smollm2
from models.recipe.llama import decoder


def build(out: Path) -> None:
    """Write the model into `out`."""
    language = smollm2()
    decoder(language.config, language.weights).save(out / "model.onnx", external=True)
    language.tokenizer.save(str(out / "tokenizer.json"))
    (out / "chat_template.jinja").write_text(language.template, encoding="utf-8")
