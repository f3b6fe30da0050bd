"""DINOv2 ViT-S/14 for images of 672x672, 2,304 patches, float32: `vision_encoder.onnx`."""

from __future__ import annotations

from pathlib import Path

from models.recipe.dinov2 import vision_encoder
from models.recipe.onnx_weights import DINOV2_S14_672, dinov2_weights


def build(out: Path) -> None:
    """Write the model into `out`."""
    graph = vision_encoder(DINOV2_S14_672, dinov2_weights(DINOV2_S14_672))
    graph.save(out / "vision_encoder.onnx", external=True)
