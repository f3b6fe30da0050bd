"""Sizes and seeds of the tiny models."""

from __future__ import annotations

from models.recipe.dinov2 import Dinov2Config
from models.recipe.llama import LlamaConfig
from models.recipe.projector import ProjectorConfig
from models.recipe.tiny_text import VOCAB
from models.recipe.whisper import WhisperConfig

SEED = 20261130
TINY_VIT = Dinov2Config(size=56, patch=14, hidden=32, heads=2, layers=2, inner=64)
TINY_LLAMA = LlamaConfig(
    vocab=VOCAB,
    hidden=32,
    inner=64,
    layers=2,
    heads=4,
    kv_heads=2,
    head=8,
    epsilon=1e-5,
    theta=10_000.0,
)
TINY_PROJECTOR = ProjectorConfig(grid=4, width=32, hidden=32)
TINY_WHISPER = WhisperConfig(
    vocab=VOCAB, hidden=32, heads=2, layers=2, inner=64, mels=8, frames=20, longest=32
)
