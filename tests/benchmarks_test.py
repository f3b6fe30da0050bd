"""What the benchmarks measure with: recipes that can be read, texts that are what was scored.

And what one plan saves: against sums by hand.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from mllm_compiler.passes.arena import Interval
from mllm_compiler.quantisation.recipe import read_recipe
from tests.benchmarks.buffers import Pipeline, vision_language
from tests.benchmarks.memory_joint import saving, separate

FOLDER = Path(__file__).parent / "benchmarks"


@pytest.mark.parametrize("path", sorted((FOLDER / "recipes").glob("*.toml")), ids=lambda p: p.stem)
def test_recipes_can_be_read(path: Path) -> None:
    assert read_recipe(str(path)).description


def test_the_scored_text_is_the_one_of_the_figures() -> None:
    """sha256 of the text that 17.77 was measured on."""
    digest = hashlib.sha256((FOLDER / "texts" / "pydoc_topics.txt").read_bytes()).hexdigest()
    assert digest.startswith("f29a790e43d79623")


def test_sessions_alone_copy_what_is_handed_on() -> None:
    """By hand: 256 + 64 bytes, and 64 + 128; one arena needs the 320 of the first."""
    pipeline = Pipeline(
        buffers=[
            Interval("inner", 0, 1, 256),
            Interval("handed", 1, 3, 64),
            Interval("last", 3, 3, 128),
        ],
        users=[{"eye"}, {"eye", "mouth"}, {"mouth"}],
        spans={"eye": (0, 1), "mouth": (2, 3)},
    )
    assert separate(pipeline) == {"eye": 320, "mouth": 192}
    assert saving(pipeline) == pytest.approx(192 / 512)


def test_one_plan_for_a_large_pipeline_saves_a_fifth() -> None:
    """By hand: what lives beside an MLP, or all that a projector touches, in bytes of f16."""
    pipeline = vision_language()
    vision, image, prompt = 577 * 2, 576 * 2, 640 * 2
    assert separate(pipeline) == {
        "vision": vision * (2 * 1024 + 4096),
        "projector": image * (1024 + 4096) + prompt * 4096,
        "language": prompt * (3 * 4096 + 2 * 11008),
    }
    assert saving(pipeline) >= 0.2
