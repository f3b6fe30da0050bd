"""A bundle of static shapes takes inputs of any length: both targets, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from mllm_compiler.bundle.verify import LOOK, open_bundle
from mllm_compiler.cli.main import run
from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.importer import read_dims
from mllm_compiler.pipelines import TARGETS
from tests.cli.dim_option_test import compile_for, inputs_of, run_on
from tests.cli.recipes import tiny

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


@pytest.mark.parametrize("target", TARGETS)
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


@pytest.mark.parametrize("target", TARGETS)
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


def test_text_is_generated_over_buckets(capsys: Captured) -> None:
    answers: list[str] = []
    for dims in ((), ("sequence_length=1,16,64", "past_sequence_length=32,128")):
        assert compile_for("numpy", *dims) == 0
        capsys.readouterr()
        words = ["run", "out.mllm_bundle", "--prompt", "Hello", "--max-new-tokens", "24"]
        assert run(words) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1] != ""


def test_each_pass_over_buckets_keeps_what_it_promises() -> None:
    dims = read_dims(["sequence_length=1,4", "past_sequence_length=8"])
    compiled = compile_model(Request(model=tiny("tiny-llama"), dims=dims, validate=True))
    assert max(compiled.errors.values()) < 2e-5


def test_text_over_buckets_is_refused_in_c_by_one_line(capsys: Captured) -> None:
    assert compile_for("c", "sequence_length=1,4", "past_sequence_length=8") == 0
    capsys.readouterr()
    assert run(["run", "out.mllm_bundle", "--prompt", "Hello"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "decoder: error: " in lines[0]
    assert "[MLC-X021]" in lines[0]
