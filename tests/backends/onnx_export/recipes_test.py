"""Models go to `mllm` and back to ONNX: ONNX Runtime sees no difference, nor does lifting again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from mllm_compiler.backends.onnx import write
from mllm_compiler.recipes import recipe_names
from models.build import built
from tests.backends.onnx_export.roundtrip import answers, exported, fingerprints, lifted
from tests.backends.recipes_test import random_inputs
from tests.passes.exports_test import EXPORTS, inputs_of

OPSETS = (17, 21, 23)
TINY = sorted(name for name in recipe_names() if name.startswith("tiny-"))
TIDIED = {
    "tiny-clip": "rows that are gathered are read as rows of a table",
    "tiny-gpt2": "reshapes of keys and values cancel where attention is an operator",
    "tiny-svtr": "what a batch norm computes of weights alone is folded",
}
"""Recipes that lift to less the second time, and why: constants are folded before lifting."""


def check_recipe(name: str, opset: int, folder: Path, tolerance: float) -> None:
    imported = lifted(built(name))
    for graph, path in exported(imported, folder, opset).items():
        onnx.checker.check_model(str(path), full_check=True)
        source = imported.spec.folder / imported.spec.graphs[graph].file
        inputs = random_inputs(onnxruntime.InferenceSession(source), seed=3)
        got = answers(path, inputs)
        for output, want in answers(source, inputs).items():
            assert np.abs(got[output] - want).max() <= tolerance * np.abs(want).max(), output
        before, after = lifted(source), lifted(path)
        if name in TIDIED:
            (folder / "again").mkdir(exist_ok=True)
            before, (path,) = after, exported(after, folder / "again", opset).values()
            after = lifted(path)
        assert fingerprints(after.module) == fingerprints(before.module), graph


@pytest.mark.parametrize("opset", [17, 23])
@pytest.mark.parametrize("name", TINY)
def test_a_recipe_comes_back_the_same(name: str, opset: int, tmp_path: Path) -> None:
    check_recipe(name, opset, tmp_path, 2e-6)


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-vlm", "tiny-whisper"])
def test_an_opset_between_gives_the_same_too(name: str, tmp_path: Path) -> None:
    check_recipe(name, 21, tmp_path, 2e-6)


@pytest.mark.slow
def test_a_real_language_model_comes_back_the_same(tmp_path: Path) -> None:
    check_recipe("smollm2-135m", 23, tmp_path, 1e-4)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("file", EXPORTS, ids=lambda f: f.stem)
def test_an_export_of_torch_comes_back_the_same(file: Path, opset: int, tmp_path: Path) -> None:
    (path,) = exported(lifted(file), tmp_path, opset).values()
    inputs = inputs_of(onnxruntime.InferenceSession(file))
    got = answers(path, inputs)
    for output, want in answers(file, inputs).items():
        np.testing.assert_allclose(got[output], want, rtol=1e-5, atol=1e-6)
    assert fingerprints(lifted(path).module) == fingerprints(lifted(file).module)


def test_the_newest_opset_writes_attention_and_norms_as_operators(tmp_path: Path) -> None:
    imported = lifted(built("tiny-llama"))
    for opset, there in ((21, False), (None, True)):
        (path,) = exported(imported, tmp_path, opset).values()
        kinds = {node.op_type for node in onnx.load(path).graph.node}
        assert ({"Attention", "RMSNormalization"} <= kinds) is there
        assert ("Softmax" in kinds) is not there


def test_two_exports_have_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        exported(lifted(built("tiny-vit")), tmp_path / name)
    files = [(tmp_path / name / "vision.onnx").read_bytes() for name in ("a", "b")]
    assert files[0] == files[1]


def test_weights_above_a_limit_stand_in_a_second_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mllm_compiler.cli.main import run

    monkeypatch.setattr(write, "INSIDE", 1000)
    out = tmp_path / "out.onnx"
    assert run(["export", str(built("tiny-vit")), "-o", str(out)]) == 0
    assert {p.name for p in tmp_path.iterdir()} == {"out.onnx", "out.onnx.data"}
    assert out.stat().st_size < 100_000 < (tmp_path / "out.onnx.data").stat().st_size
    source = min(built("tiny-vit").glob("*.onnx"))
    assert fingerprints(lifted(out).module) == fingerprints(lifted(source).module)
    inputs = random_inputs(onnxruntime.InferenceSession(source), seed=3)
    for output, want in answers(source, inputs).items():
        np.testing.assert_allclose(answers(out, inputs)[output], want, atol=1e-5)
