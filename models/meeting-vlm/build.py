"""A model that describes video meetings: DINOv2 eyes, a projector of ours, SmolLM2's voice.

Three graphs, `vision_encoder.onnx`, `projector.onnx` and `decoder.onnx`; the last takes
embeddings and holds the token embedding as a weight, which its head uses.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tokenizers import AddedToken

from models.recipe.dinov2 import vision_encoder
from models.recipe.gguf_weights import smollm2
from models.recipe.graph import FloatArray
from models.recipe.llama import decoder
from models.recipe.onnx_weights import DINOV2_S14, dinov2_weights
from models.recipe.packages import RecipeError
from models.recipe.projector import ProjectorConfig, projector

HERE = Path(__file__).resolve().parent


def build(out: Path) -> None:
    """Write the model into `out`."""
    eyes = vision_encoder(DINOV2_S14, dinov2_weights())
    eyes.save(out / "vision_encoder.onnx", external=True)
    between = projector(ProjectorConfig(), projector_weights())
    between.save(out / "projector.onnx", external=True)
    language = smollm2()
    voice = decoder(language.config, language.weights, embeds=True)
    voice.save(out / "decoder.onnx", external=True)
    language.tokenizer.add_special_tokens([AddedToken("<image>", special=True, normalized=False)])
    language.tokenizer.save(str(out / "tokenizer.json"))
    template = (HERE / "chat_template.jinja").read_text(encoding="utf-8")
    (out / "chat_template.jinja").write_text(template, encoding="utf-8")


def projector_weights() -> dict[str, FloatArray]:
    """Return the trained weights, stored as float16, by Hugging Face name."""
    path = HERE / "projector.npz"
    if not path.exists():
        raise RecipeError(f"{path} is missing (check it out, or make it with train.py)")
    with np.load(path) as stored:
        return {name: stored[name].astype(np.float32) for name in stored.files}
