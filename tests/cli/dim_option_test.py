"""`--dim`: fixed sizes and ranges, from the command line to the run, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from mllm_compiler.cli.main import run
from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.importer import read_dims
from tests.cli.own_targets import OWN_TARGETS
from tests.cli.recipes import tiny

Captured = pytest.CaptureFixture[str]
MODEL = "tiny-llama"


@pytest.fixture(autouse=True)
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny(MODEL)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def inputs_of(tokens: int, past: int = 0) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(tiny(MODEL) / "model.onnx")
    made: dict[str, np.ndarray] = {
        "input_ids": np.random.default_rng(tokens).integers(0, 40, (1, tokens)),
        "attention_mask": np.ones((1, past + tokens), np.int64),
        "position_ids": np.arange(past, past + tokens)[None],
    }
    for given in session.get_inputs():
        if given.name.startswith("past"):
            shape = (1, given.shape[1], past, given.shape[3])
            made[given.name] = np.zeros(shape, np.float32)
    return made


def logits_of(inputs: dict[str, np.ndarray]) -> np.ndarray:
    session = onnxruntime.InferenceSession(tiny(MODEL) / "model.onnx")
    return np.asarray(session.run(["logits"], inputs)[0])


def run_on(inputs: dict[str, np.ndarray]) -> int:
    np.savez("in.npz", **inputs)  # pyright: ignore[reportArgumentType]
    words = ["run", "out.mllm_bundle", "--inputs", "in.npz", "--outputs", "out.npz"]
    return run([*words, "--entry", "decoder"])


def compile_for(target: str, *dims: str) -> int:
    options = [word for dim in dims for word in ("--dim", dim)]
    words = ["compile", str(tiny(MODEL)), "--target", target, "-o", "out.mllm_bundle"]
    return run([*words, *options])


@pytest.mark.parametrize("target", OWN_TARGETS)
def test_a_fixed_size_takes_the_place_of_its_symbol(target: str, capsys: Captured) -> None:
    assert compile_for(target, "sequence_length=7", "past_sequence_length=0") == 0
    assert run_on(inputs_of(7)) == 0
    want = logits_of(inputs_of(7))
    assert np.abs(np.load("out.npz")["logits"] - want).max() < 1e-5 * np.abs(want).max()
    capsys.readouterr()
    assert run_on(inputs_of(6)) == 1
    assert "input_ids" in capsys.readouterr().err


def test_shape_arithmetic_over_fixed_sizes_folds() -> None:
    dims = read_dims(["sequence_length=7", "past_sequence_length=2", "batch_size=1"])
    for stop in ("infer-shapes", "lift-patch-embed"):
        text = str(compile_model(Request(model=tiny(MODEL), dims=dims, stop_after=stop)).module)
        assert "tensor<?" not in text
        assert "sequence_length" not in text
        assert "#mllm.bound" not in text


@pytest.mark.parametrize("target", OWN_TARGETS)
def test_a_run_beyond_a_bound_is_refused(target: str, capsys: Captured) -> None:
    assert compile_for(target, "2<=sequence_length<=5") == 0
    assert run_on(inputs_of(5)) == 0
    capsys.readouterr()
    for tokens, words in (
        (6, "= 6 exceeds the compiled bound 5"),
        (1, "= 1 is below the compiled"),
    ):
        assert run_on(inputs_of(tokens)) == 1
        line = capsys.readouterr().err
        assert line.startswith("decoder: error: input '"), line
        assert f"sequence_length {words}" in line
        assert "[MLC-X005]" in line


def test_memory_is_planned_for_the_bound(tmp_path: Path) -> None:
    plans: list[int] = []
    for text in ("sequence_length<=256", "sequence_length<=16"):
        request = Request(model=tiny(MODEL), dims=read_dims([text]), output=tmp_path / "out")
        manifest = compile_model(request).manifest
        assert manifest is not None
        plans.append(manifest.plan.plan)
    assert plans[1] * 8 < plans[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sequence_lenght=4", "did you mean 'sequence_length'?"),
        ("sequence_length", "'sequence_length' sets no dimension"),
        ("sequence_length>=4", "sets no dimension"),
        ("sequence_length=-4", "sets no dimension"),
        ("4<=sequence_length<=3", "no size is from 4 to 3"),
        ("sequence_length=4,2", "[4, 2] do not ascend"),
        ("sequence_length=99999999999", "no size is from 99999999999"),
        ("sequence_length=0", "at size 0, 'input_ids' of 'decoder' has no tokens"),
        ("sequence_length<=0", "at size 0, 'input_ids' of 'decoder' has no tokens"),
    ],
)
def test_a_wrong_dimension_is_one_line(text: str, words: str, capsys: Captured) -> None:
    assert compile_for("numpy", text) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    assert words in lines[0]
    assert "[MLC-U015]" in lines[0]
    assert not Path("out.mllm_bundle").exists()
