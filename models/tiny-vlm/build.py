"""The structure of meeting-vlm with seeded weights and tiny sizes, for tests."""

from __future__ import annotations

from pathlib import Path

from models.recipe import dinov2, llama, projector
from models.recipe.tiny import SEED, TINY_LLAMA, TINY_PROJECTOR, TINY_VIT
from models.recipe.tiny_text import IMAGE_TEMPLATE, tiny_tokenizer


def build(out: Path) -> None:
    """Write the model into `out`."""
    eyes = dinov2.seeded_weights(TINY_VIT, SEED + 1)
    dinov2.vision_encoder(TINY_VIT, eyes).save(out / "vision_encoder.onnx")
    between = projector.seeded_weights(TINY_PROJECTOR, SEED + 2)
    projector.projector(TINY_PROJECTOR, between).save(out / "projector.onnx")
    voice = llama.seeded_weights(TINY_LLAMA, SEED)
    llama.decoder(TINY_LLAMA, voice, embeds=True).save(out / "decoder.onnx")
    tiny_tokenizer().save(str(out / "tokenizer.json"))
    (out / "chat_template.jinja").write_text(IMAGE_TEMPLATE, encoding="utf-8")
