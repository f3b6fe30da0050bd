"""What the benchmarks measure with: recipes that can be read, texts that are what was scored."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from mllm_compiler.quantisation.recipe import read_recipe

FOLDER = Path(__file__).parent / "benchmarks"


@pytest.mark.parametrize("path", sorted((FOLDER / "recipes").glob("*.toml")), ids=lambda p: p.stem)
def test_recipes_can_be_read(path: Path) -> None:
    assert read_recipe(str(path)).description


def test_the_scored_text_is_the_one_of_the_figures() -> None:
    """sha256 of the text that 17.77 was measured on."""
    digest = hashlib.sha256((FOLDER / "texts" / "pydoc_topics.txt").read_bytes()).hexdigest()
    assert digest.startswith("f29a790e43d79623")
