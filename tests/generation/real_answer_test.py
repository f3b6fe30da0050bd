"""Whole answers of the target `numpy`, token by token those of ONNX Runtime on the same ONNX."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mllm_compiler.bundle.verify import open_bundle
from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.generation.loop import Ask, generate
from mllm_compiler.generation.model import NumpyModel, open_model
from mllm_compiler.recipes import build_recipe
from models.recipe.speech import clips, log_mel, samples
from tests.bundle.small_bundle import KEY, TRUSTED
from tests.runtime.answer_test import PROMPTS, TALKERS
from tests.runtime.onnx_answers import OnnxModel

Opener = Callable[[str], tuple[OnnxModel, NumpyModel]]


@pytest.fixture
def pair(tmp_path: Path) -> Opener:
    """A recipe at both ends."""

    def open_recipe(name: str) -> tuple[OnnxModel, NumpyModel]:
        folder = build_recipe(name, lambda line: None)
        bundle = tmp_path / f"{name}.mllm_bundle"
        compile_model(Request(model=folder, output=bundle, key=KEY, target="numpy"))
        return OnnxModel(folder), open_model(open_bundle(bundle, TRUSTED))

    return open_recipe


def tokens(model: NumpyModel, ask: Ask) -> list[int]:
    return generate(model, ask, lambda text: None).tokens


@pytest.mark.parametrize("name", TALKERS)
@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_a_tiny_language_model(pair: Opener, name: str, temperature: float) -> None:
    onnx, model = pair(name)
    for seed, prompt in enumerate(PROMPTS):
        expected = onnx.text(prompt, 20, onnx.sampler(temperature, seed))
        ask = Ask(prompt=prompt, max_new_tokens=20, temperature=temperature, seed=seed)
        assert tokens(model, ask) == expected


@pytest.mark.slow
def test_64_greedy_tokens_of_smollm2(pair: Opener) -> None:
    onnx, model = pair("smollm2-135m")
    for prompt in PROMPTS:
        expected = onnx.text(prompt, 64, onnx.sampler(0.0, 0))
        assert tokens(model, Ask(prompt=prompt, max_new_tokens=64)) == expected


@pytest.mark.slow
def test_whisper_hears_the_same_words(pair: Opener) -> None:
    onnx, model = pair("whisper-base")
    heard = 0
    for clip in clips():
        expected = onnx.sound(log_mel(samples(clip.path)), 100, onnx.sampler(0.0, 0))
        assert tokens(model, Ask(audio=clip.path)) == expected
        heard += len(np.atleast_1d(expected))
    assert heard > 71  # the clips' words
