"""Bytes that are copied between the stages of an answer: none, and counted where there are some.

The truth of the counts is arithmetic on shapes; that the answers stay right is for `answer_test`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mllm_compiler.bundle.template_segments import template_segments
from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.importer import read_dims
from mllm_compiler.recipes import build_recipe
from models.recipe.tiny_text import TEMPLATE
from runtime_stub import Model
from tests.bundle.small_bundle import KEY
from tests.cli.recipes import tiny
from tests.passes.bucket_shapes_test import LLAMA, llama
from tests.runtime.text_models import SIDE, WIDTH, vision_module, write_text_bundle

ROWS = 4
"""Of an image's features in the small vision model."""


@pytest.fixture
def recipe(tmp_path: Path, trust: Path) -> Callable[[str], Model]:
    def opened(name: str) -> Model:
        bundle = tmp_path / f"{name}.mllm_bundle"
        compile_model(Request(model=build_recipe(name, print), output=bundle, key=KEY))
        return Model.open(bundle, trust=trust, threads=1)

    return opened


def copied(model: Model, prompt: str | None = None, **options: object) -> int:
    """Bytes of an answer of eight tokens."""
    before = model.counters.copied_bytes
    pieces = list(model.generate(prompt, max_new_tokens=8, **options))  # type: ignore[arg-type]
    assert len(pieces) > 1
    found = model.statistics.copied_bytes
    assert model.counters.copied_bytes - before == found
    return found


def picture(width: int, height: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.random.default_rng(1).integers(0, 256, (height, width, 3), dtype=np.uint8)


def test_an_image_goes_through_all_stages_without_a_copy(recipe: Callable[[str], Model]) -> None:
    with recipe("tiny-vlm") as model:
        assert copied(model, image=picture(56, 56)) == 0


def test_sound_and_its_keys_and_values_are_read_where_they_lie(
    recipe: Callable[[str], Model],
) -> None:
    sound = (0.2 * np.random.default_rng(0).standard_normal(9000)).astype(np.float32)
    with recipe("tiny-whisper") as model:
        assert copied(model, audio=sound, rate=16000) == 0


@pytest.mark.slow
def test_the_meeting_model_copies_nothing(recipe: Callable[[str], Model]) -> None:
    with recipe("meeting-vlm") as model:
        assert copied(model, image=picture(640, 480)) == 0


def test_an_image_that_is_shown_twice_is_copied_once(tmp_path: Path, trust: Path) -> None:
    form = template_segments(TEMPLATE, image_token="<image>")["image"]
    shown = [segment for segment in form if segment.get("image")]
    text = {"stop": [0, 2], "template": {"image": [*shown, *form]}}
    path = write_text_bundle(tmp_path / "twice", *vision_module(), config={"text": text})
    with Model.open(path, trust=trust, threads=1) as model:
        assert copied(model, "who", image=picture(SIDE, SIDE)) == ROWS * WIDTH * 4


def test_what_is_padded_is_counted(tmp_path: Path) -> None:
    """Three tokens in a bucket of more behind five in another: each tensor is copied once."""
    path = tmp_path / "padded.mllm_bundle"
    recipe, *dims = LLAMA
    compile_model(Request(model=tiny(recipe), dims=read_dims(dims), output=path))
    with Model.open(path, allow_unsigned=True, threads=1) as model:
        inputs = llama(3, 5)
        outputs = model.run("decoder", inputs)
        tensors = [*inputs.values(), *outputs.values()]
        assert model.counters.copied_bytes == sum(tensor.nbytes for tensor in tensors)
