"""The tiny models, built once a process."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from mllm_compiler.recipes import find_model

TINY = ("tiny-llama", "tiny-vit", "tiny-vlm", "tiny-whisper")


@cache
def tiny(name: str) -> Path:
    """The folder of a tiny model."""
    return find_model(name, lambda line: None)
