"""The tiny models, built once a process."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from mllm_compiler.recipes import find_model, recipe_names

TINY = ("tiny-llama", "tiny-vit", "tiny-vlm", "tiny-whisper")
EVERY = [
    name if name in TINY else pytest.param(name, marks=pytest.mark.slow)
    for name in recipe_names()
    if name.startswith("tiny-")
]
"""Every tiny model; those that are like others are slow tests."""


@cache
def tiny(name: str) -> Path:
    """The folder of a tiny model."""
    return find_model(name, lambda line: None)
