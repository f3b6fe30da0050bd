"""`--validate` with the user's samples: a table, a report, and located lines for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mllm_compiler.cli import opt
from mllm_compiler.cli.main import run
from tests.cli.recipes import tiny

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny("tiny-vit")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def sample(path: str, **arrays: np.ndarray) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, allow_pickle=False, **arrays)


def pixels() -> np.ndarray:
    return np.random.default_rng(3).standard_normal((1, 3, 56, 56)).astype(np.float32)


def validated(*words: str) -> int:
    model = str(tiny("tiny-vit"))
    return run(["compile", model, "--stop-after", "lift-linear", "--validate", *words])


@pytest.mark.parametrize("folder", ["samples", "samples/vision"])
def test_samples_are_tried_and_the_worst_input_is_named(folder: str, capsys: Captured) -> None:
    sample(f"{folder}/0001.npz", pixel_values=pixels() * 100)
    assert validated("--data", "samples", "--report", "r.html", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    proof = {entry["name"]: entry["proof"] for entry in facts["passes"]}["lift-onnx"]
    assert proof["runs"] == len(["0001.npz", "ordinary", "denormal", "large"])
    assert 0 < proof["error"] < proof["promised"]
    assert proof["result"] == "last_hidden_state"
    assert proof["node"] == "/embeddings/patch_embeddings/projection/Conv"
    page = Path("r.html").read_text()
    assert "<h2>Proof</h2>" in page
    assert f"<td>{proof['case']}" in page


def test_the_table_names_what_moved_most(capsys: Captured) -> None:
    assert validated() == 0
    lines = capsys.readouterr().out.splitlines()
    (head,) = [line for line in lines if line.startswith("pass ")]
    titles = ("pass", "runs", "promised", "relative error", "graph", "result", "input")
    assert " ".join(head.split()) == " ".join((*titles, "first node"))
    (row,) = [line for line in lines if line.startswith("lift-onnx  ") and "2e-05" in line]
    assert "last_hidden_state" in row


def test_rows_of_codes_move_before_tflite_is_written_and_not_by_it(capsys: Captured) -> None:
    """The proof of `lower-to-tfl` beside TFLite's own form of dynamic activations."""
    model = str(tiny("tiny-vit"))
    words = ["--target", "tflite", "--quant", "w8a8", "--unsigned", "--validate", "--json"]
    assert run(["compile", model, *words, "-o", "vit.mllm_bundle"]) == 0
    passes = json.loads(capsys.readouterr().out)["passes"]
    errors = {entry["name"]: entry["proof"]["error"] for entry in passes if entry.get("proof")}
    assert 1e-3 < errors["dynamic-rows"] < 0.1
    assert errors["lower-to-tfl"] < 2e-5


def test_pictures_become_samples(capsys: Captured) -> None:
    Path("pictures").mkdir()
    Image.effect_noise((90, 70), 64).save("pictures/noise.png")
    assert validated("--data", "pictures", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    proof = {entry["name"]: entry["proof"] for entry in facts["passes"]}["lift-onnx"]
    assert proof["runs"] == len(["0000.npz", "ordinary", "denormal", "large"])


def test_samples_that_do_not_fit_are_one_located_line(capsys: Captured) -> None:
    cases = {
        "empty": ({}, "[MLC-U016]"),
        "other": ({"pixels": pixels()}, "[MLC-U016]"),
        "vision/wide": ({"pixel_values": pixels()[..., :16]}, "[MLC-D001]"),
        "vision/typed": ({"pixel_values": pixels().astype(np.float64)}, "float64 where"),
        "vision/named": ({"pixels": pixels()}, "these inputs are missing: pixel_values"),
    }
    for number, (name, (arrays, text)) in enumerate(cases.items()):
        sample(f"{number}/{name}.npz", **arrays)
        assert validated("--data", str(number)) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert text.replace("[MLC-D001]", "[MLC-D001]") in line
        assert line.startswith(str(number))


def test_opt_validates_a_pass_by_itself(capsys: Captured) -> None:
    text = """
    func.func @graph(%x: tensor<2x8xf32> {mllm.name = "x"})
        -> (tensor<2x8xf32> {mllm.name = "y"}) {
      %y = onnx.Softmax %x {axis = 1 : i64} : (tensor<2x8xf32>) -> (tensor<2x8xf32>)
      func.return %y : tensor<2x8xf32>
    }
    """
    Path("softmax.mlir").write_text(text)
    sample("data/1.npz", x=np.full((2, 8), 7, np.float32))
    words = ["softmax.mlir", "--validate", "--data", "data", "-p"]
    assert opt.run([*words, "infer-shapes,lift-onnx"]) == 0
    assert "mllm.softmax" in capsys.readouterr().out
