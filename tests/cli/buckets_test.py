"""A bundle of static shapes takes inputs of any length: both targets, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from mllm_compiler.bundle.verify import LOOK, open_bundle
from mllm_compiler.cli.main import run
from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.importer import read_dims
from runtime_stub import Model
from tests.cli.dim_option_test import compile_for, inputs_of, run_on
from tests.cli.own_targets import OWN_TARGETS
from tests.cli.recipes import tiny
from tests.runtime.audio_test import wav

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tiny-llama", "tiny-vit"):
        tiny(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def near(names: tuple[str, ...], inputs: dict[str, np.ndarray], model: Path) -> None:
    want = onnxruntime.InferenceSession(model).run(list(names), inputs)
    got = np.load("out.npz")
    for name, array in zip(names, want, strict=True):
        array = np.asarray(array)
        assert got[name].shape == array.shape
        assert np.abs(got[name] - array).max() < 1e-5 * max(1, np.abs(array).max())


@pytest.mark.parametrize("target", OWN_TARGETS)
def test_a_decoder_runs_at_any_length(target: str, capsys: Captured) -> None:
    assert compile_for(target, "sequence_length=1,4,16", "past_sequence_length=8,32") == 0
    for tokens, past in ((1, 0), (3, 0), (4, 5), (16, 32), (2, 9)):
        inputs = inputs_of(tokens, past)
        assert run_on(inputs) == 0
        near(
            ("logits", "present.0.key", "present.1.value"),
            inputs,
            tiny("tiny-llama") / "model.onnx",
        )
    capsys.readouterr()
    for inputs, words in (
        (inputs_of(17), "sequence_length = 17 exceeds the compiled bound 16 [MLC-X005]"),
        (inputs_of(1, 33), "past_sequence_length = 33 exceeds the compiled bound 32 [MLC-X005]"),
        (
            {**inputs_of(3), "position_ids": np.arange(4)[None]},
            "error: input 'position_ids': ",
        ),
    ):
        assert run_on(inputs) == 1
        line = capsys.readouterr().err
        assert line.startswith("decoder: error: ")
        assert words in line


@pytest.mark.parametrize("target", OWN_TARGETS)
def test_an_encoder_takes_any_batch(target: str) -> None:
    words = ["compile", str(tiny("tiny-vit")), "--target", target, "-o", "out.mllm_bundle"]
    assert run([*words, "--dim", "batch_size=1,3"]) == 0
    for batch in (1, 2, 3):
        pixels = np.random.default_rng(batch).standard_normal((batch, 3, 56, 56))
        inputs = {"pixel_values": pixels.astype(np.float32)}
        np.savez("in.npz", **inputs)  # pyright: ignore[reportArgumentType]
        assert run(["run", "out.mllm_bundle", "--inputs", "in.npz", "--outputs", "out.npz"]) == 0
        near(("last_hidden_state",), inputs, tiny("tiny-vit") / "vision_encoder.onnx")


def test_the_manifest_shows_the_entry_and_the_weights_once() -> None:
    assert compile_for("c", "sequence_length<=16") == 0
    plain = open_bundle(Path("out.mllm_bundle"), LOOK)
    assert compile_for("c", "sequence_length=1,4,16", "past_sequence_length=8,32") == 0
    bundle = open_bundle(Path("out.mllm_bundle"), LOOK)
    entry = bundle.manifest.entries["decoder"]
    assert list(bundle.manifest.entries) == ["decoder"]
    assert entry.role == "language-model"
    assert entry.inputs[0].shape == ("batch_size", "sequence_length")
    assert len(bundle.manifest.topology) == 6
    sizes = [sum(w.size for w in b.manifest.weights) for b in (plain, bundle)]
    assert sizes[1] <= sizes[0] * 1.01


BUCKETS = ("sequence_length=1,16,64", "past_sequence_length=32,128")


@pytest.mark.parametrize("target", OWN_TARGETS)
def test_text_is_generated_over_buckets(target: str, capsys: Captured) -> None:
    answers: list[str] = []
    for dims in ((), BUCKETS):
        assert compile_for(target, *dims) == 0
        capsys.readouterr()
        words = ["run", "out.mllm_bundle", "--prompt", "Hello", "--max-new-tokens", "24"]
        assert run(words) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1] != ""


def tokens_of(recipe: str, folder: Path, dims: Sequence[str], most: int) -> list[list[int]]:
    """What the C runtime answers to prompts of several lengths, one after the other."""
    path = folder / f"{recipe}-{len(dims)}.mllm_bundle"
    compile_model(Request(model=tiny(recipe), dims=read_dims(dims), output=path))
    prompts = ("Hello", "the meeting is on " * 4, "a")
    with Model.open(path, allow_unsigned=True) as model:
        return [
            [p.token for p in model.generate(prompt, max_new_tokens=most) if p.token is not None]
            for prompt in prompts
        ]


SPEAKERS = [
    "tiny-llama",
    "tiny-gpt2",
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("tiny-bloom", "tiny-qwen2")),
]


@pytest.mark.parametrize("recipe", SPEAKERS)
def test_c_says_the_same_with_and_without_buckets(recipe: str, tmp_path: Path) -> None:
    """Prompts longer than the largest bucket of tokens are read in parts."""
    dims = ("sequence_length=1,4,16", "past_sequence_length=8,64,160", "batch_size=1")
    answers = tokens_of(recipe, tmp_path, dims, 40)
    assert answers == tokens_of(recipe, tmp_path, (), 40)
    assert max(map(len, answers)) == 40


def test_an_answer_ends_where_the_largest_past_is_full() -> None:
    assert compile_for("c", "sequence_length=1,16", "past_sequence_length=4,40") == 0
    with Model.open("out.mllm_bundle", allow_unsigned=True) as model:
        assert len(list(model.generate("Hello", max_new_tokens=60))) > 1
        figures = model.statistics
    assert figures.finish == "full"
    assert figures.prompt_tokens + figures.new_tokens == 42


def test_each_pass_over_buckets_keeps_what_it_promises() -> None:
    dims = read_dims(["sequence_length=1,4", "past_sequence_length=8"])
    compiled = compile_model(Request(model=tiny("tiny-llama"), dims=dims, validate=True))
    assert max(proof.error for proof in compiled.proofs.values()) < 2e-5
    assert compiled.proofs["bucket-shapes"].runs > 0


def test_a_picture_is_described_over_buckets_in_c(capsys: Captured) -> None:
    Image.fromarray(np.arange(60 * 40 * 3, dtype=np.uint8).reshape(60, 40, 3)).save("in.png")
    answers: list[str] = []
    for dims in ((), BUCKETS):
        words = ["compile", str(tiny("tiny-vlm")), "--target", "c", "-o", "out.mllm_bundle"]
        assert run([*words, *(word for dim in dims for word in ("--dim", dim))]) == 0
        capsys.readouterr()
        asked = ["--image", "in.png", "--prompt", "Hello", "--max-new-tokens", "24"]
        assert run(["run", "out.mllm_bundle", *asked]) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1] != ""


def test_sound_over_buckets_is_refused_in_c_by_one_line(capsys: Captured) -> None:
    words = ["compile", str(tiny("tiny-whisper")), "--target", "c", "-o", "out.mllm_bundle"]
    assert run([*words, "--dim", "past_decoder_sequence_length=8,16"]) == 0
    capsys.readouterr()
    wave = (np.sin(np.arange(16000) / 9) * 9000).astype("<i2").reshape(-1, 1)
    Path("in.wav").write_bytes(wav(wave, 16000))
    assert run(["run", "out.mllm_bundle", "--audio", "in.wav"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "'encoder_hidden_states' [MLC-X021]" in lines[0]
