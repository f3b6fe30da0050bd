"""Whole answers of compiled recipes, token by token those of ONNX Runtime on the same ONNX."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mllm_compiler.bundle.verify import Policy, open_bundle
from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.errors import CompileError
from mllm_compiler.generation.features import log_mel as log_mel_of_window
from mllm_compiler.generation.loop import Ask, generate
from mllm_compiler.generation.model import open_model
from mllm_compiler.generation.settings import AudioSettings
from mllm_compiler.recipes import build_recipe
from models.recipe.speech import clips, log_mel, samples
from runtime_stub import Model, RuntimeFailure
from tests.bundle.small_bundle import KEY
from tests.runtime.onnx_answers import OnnxModel

Pair = tuple[OnnxModel, Model]
Opener = Callable[[str], Pair]
TALKERS = ("tiny-llama", "tiny-qwen2", "tiny-gpt2", "tiny-gemma3", "tiny-bloom")
PROMPTS = (
    "What is photosynthesis?",
    "Write a haiku about the sea.",
    "List three uses of a paper clip.",
    "Explain what a compiler does, to a child of 8.",
    "Translate 'good morning' to French, naïve café style: 12 + 34²?",
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, trust: Path) -> Opener:
    """A recipe at both ends."""

    @lru_cache(maxsize=1)
    def open_recipe(name: str) -> Pair:
        folder = build_recipe(name, lambda line: None)
        bundle = tmp_path_factory.mktemp("answers") / f"{name}.mllm_bundle"
        compile_model(Request(model=folder, output=bundle, key=KEY))
        return OnnxModel(folder), Model.open(bundle, trust=trust, threads=2)

    return open_recipe


def tokens(model: Model, prompt: str | None = None, **options: object) -> list[int]:
    pieces = model.generate(prompt, **options)  # type: ignore[arg-type]
    return [piece.token for piece in pieces if piece.token is not None]


@pytest.mark.parametrize("name", TALKERS)
@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_a_tiny_language_model(pair: Opener, name: str, temperature: float) -> None:
    onnx, model = pair(name)
    for seed, prompt in enumerate(PROMPTS):
        expected = onnx.text(prompt, 20, onnx.sampler(temperature, seed))
        options = {"max_new_tokens": 20, "temperature": temperature, "seed": seed}
        assert tokens(model, prompt, **options) == expected


def test_a_tiny_vision_language_model(pair: Opener) -> None:
    onnx, model = pair("tiny-vlm")
    size = tuple(onnx.spec["image"]["size"])
    for seed, prompt in enumerate(PROMPTS):
        pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
        expected = onnx.picture(pixels, prompt, 20, onnx.sampler(1.5, seed))
        options = {"max_new_tokens": 20, "temperature": 1.5, "seed": seed}
        assert tokens(model, prompt, image=pixels, **options) == expected


def test_a_tiny_language_model_that_attends_to_an_image(pair: Opener, tmp_path: Path) -> None:
    """On both targets; each answer is about its own image, and without one there is none."""
    onnx, model = pair("tiny-flamingo")
    bundle = tmp_path / "numpy.mllm_bundle"
    request = Request(model=onnx.folder, target="numpy", output=bundle, key=KEY)
    compile_model(request)
    on_numpy = open_model(open_bundle(bundle, Policy(allow_unsigned=True)))
    size, said = tuple(onnx.spec["image"]["size"]), set[tuple[int, ...]]()
    options = {"max_new_tokens": 20, "temperature": 5.0, "seed": 1}
    for seed in range(4):
        pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
        expected = onnx.attending(pixels, PROMPTS[0], 20, onnx.sampler(5.0, 1))
        assert tokens(model, PROMPTS[0], image=pixels, **options) == expected
        Image.fromarray(pixels).save(tmp_path / "image.png")
        ask = Ask(prompt=PROMPTS[0], image=tmp_path / "image.png", **options)
        assert generate(on_numpy, ask, lambda piece: None).tokens == expected
        said.add(tuple(expected))
    assert len(said) > 1
    with pytest.raises(RuntimeFailure, match="attends to an image: give it one") as refused:
        tokens(model, PROMPTS[0])
    assert refused.value.code == "MLC-X025"
    with pytest.raises(CompileError, match="attends to a picture") as caught:
        generate(on_numpy, Ask(prompt=PROMPTS[0]), lambda piece: None)
    assert caught.value.code == "MLC-X025"


def test_a_tiny_model_that_listens(pair: Opener) -> None:
    onnx, model = pair("tiny-whisper")
    settings = AudioSettings(**onnx.spec["audio"])
    for seed in range(3):
        rng = np.random.default_rng(seed)
        window = np.zeros(settings.frames * settings.hop, np.float64)
        sound = (0.2 * rng.standard_normal(len(window) // 3)).astype(np.float32)
        window[: len(sound)] = sound
        mel = log_mel_of_window(window, settings)
        expected = onnx.sound(mel, 20, onnx.sampler(1.5, seed))
        options = {"max_new_tokens": 20, "temperature": 1.5, "seed": seed}
        assert tokens(model, audio=sound, rate=settings.rate, **options) == expected


@pytest.mark.slow
def test_64_greedy_tokens_of_smollm2(pair: Opener) -> None:
    onnx, model = pair("smollm2-135m")
    for prompt in PROMPTS:
        expected = onnx.text(prompt, 64, onnx.sampler(0.0, 0))
        assert tokens(model, prompt, max_new_tokens=64) == expected


@pytest.mark.slow
def test_whisper_writes_down_what_is_said(pair: Opener) -> None:
    onnx, model = pair("whisper-base")
    wrong = 0
    for clip in clips():
        sound = samples(clip.path)
        expected = onnx.sound(log_mel(sound), 100, onnx.sampler(0.0, 0))
        said = tokens(model, audio=sound)
        assert said == expected
        text = model.detokenize(said).lower().replace("mr.", "mister").replace("-", " ")
        wrong += distance(re.sub(r"[^a-z ]", "", text).split(), clip.transcript.split())
    assert wrong <= 1  # a stray "a" in the reference


def distance(a: list[str], b: list[str]) -> int:
    """Words to insert, delete or replace (Levenshtein)."""
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        before, row = row, [i]
        for j, right in enumerate(b, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (left != right)))
    return row[-1]


@pytest.mark.slow
def test_meeting_vlm_describes_frames(pair: Opener) -> None:
    onnx, model = pair("meeting-vlm")
    sys.path.insert(0, str(Path(__file__).parents[2] / "models" / "meeting-vlm"))
    from frames import HELD_OUT, frame

    for seed in (HELD_OUT, HELD_OUT + 1):
        pixels = np.asarray(frame(seed), np.uint8)
        prompt = onnx.spec["text"]["prompt"]
        expected = onnx.picture(pixels, prompt, 40, onnx.sampler(0.0, 0))
        assert tokens(model, image=pixels, max_new_tokens=40) == expected
