"""`mllmc compile --quant`: a quantised bundle that answers, the same bytes twice, clear faults."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mllm_compiler.bundle.verify import open_bundle
from mllm_compiler.cli.main import run
from mllm_compiler.compiler import PROVEN_ON, Request, compile_model
from mllm_compiler.errors import CompileError
from mllm_compiler.generation.loop import Ask, generate
from mllm_compiler.generation.model import open_model
from mllm_compiler.pipelines import FUSE, ROUNDING
from mllm_compiler.quantisation.recipe import read_recipe, recipe_names
from tests.bundle.small_bundle import KEY, TRUSTED
from tests.cli.recipes import tiny

RECIPES = [name for name in recipe_names() if not read_recipe(name).needs_data]
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_that_needs_no_data_goes_through_every_pass(recipe: str) -> None:
    request = Request(model=tiny("tiny-llama"), target="numpy", quant=recipe, validate=True)
    compiled = compile_model(request)
    rounding = compiled.proofs["quantise-linears"], compiled.proofs["quantise-cache"]
    assert max(proof.error for proof in rounding) > 1e-4
    assert compiled.proofs["bucket-shapes"].error == 0


def test_turning_and_smoothing_keep_what_they_promise(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(
        "rotate = true\nsmooth = 'smoothquant'\n[linears]\nbits = 8\nactivations = 'dynamic'\n"
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("The meeting starts at nine. " * 50)
    request = Request(
        model=tiny("tiny-llama"),
        target="numpy",
        quant=str(tmp_path / "r.toml"),
        data=tmp_path / "data",
        validate=True,
    )
    proofs = compile_model(request).proofs
    for name in ("rotate-weights", "smooth-activations"):
        assert 0 < proofs[name].error < 1e-4


@pytest.mark.parametrize("recipe", ["w8a8", "w4a16-gptq"])
def test_passes_behind_the_codes_are_proven_on_the_samples_too(recipe: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("The meeting starts at nine. " * 50)
    request = Request(model=tiny("tiny-llama"), quant=recipe, validate=True)
    seeded = compile_model(request).proofs
    proofs = compile_model(replace(request, data=tmp_path / "data")).proofs
    fused = "fuse-qkv" if recipe == "w4a16-gptq" else "fuse-quantized-linear"
    windows = PROVEN_ON.tokens // PROVEN_ON.window
    for name in ("lift-linear", "quantise-linears", fused, "place"):
        assert proofs[name].runs == seeded[name].runs + windows
    assert max(proofs[name].error for name in FUSE.passes) <= ROUNDING


@pytest.mark.parametrize("name", ["tiny-vit", "tiny-whisper", "tiny-vlm", "tiny-bert"])
def test_a_quantised_model_is_the_same_bytes_twice(name: str, tmp_path: Path) -> None:
    for place in ("a", "b", "float"):
        quant = None if place == "float" else "w4a8"
        request = Request(
            model=tiny(name), target="numpy", quant=quant, output=tmp_path / place, key=KEY
        )
        compile_model(request)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert (tmp_path / "a").read_bytes() != (tmp_path / "float").read_bytes()


@pytest.mark.parametrize("recipe", ["w8a8", "w4a8", "w4a16"])
def test_c_computes_what_the_reference_does(recipe: str, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).standard_normal((1, 3, 56, 56)).astype(np.float32)
    np.savez(tmp_path / "in.npz", pixel_values=pixels)
    found: list[np.ndarray] = []
    for target in ("c", "numpy"):
        words = [str(tiny("tiny-vit")), "--target", target, "--quant", recipe]
        assert run(["compile", *words, "-o", f"{target}.mllm_bundle"]) == 0
        files = ["--inputs", "in.npz", "--outputs", f"{target}.npz"]
        assert run(["run", f"{target}.mllm_bundle", *files]) == 0
        found.append(np.load(f"{target}.npz")["last_hidden_state"])
    # An activation at the middle between two codes may go either way.
    np.testing.assert_allclose(found[0], found[1], atol=0.02 * np.abs(found[1]).max())


def test_a_quantised_vision_language_model_answers(tmp_path: Path) -> None:
    """Its embeddings are looked up in the codes of its head."""
    bundle = tmp_path / "vlm.mllm_bundle"
    request = Request(model=tiny("tiny-vlm"), target="numpy", quant="w8a8", output=bundle, key=KEY)
    compile_model(request)
    model = open_model(open_bundle(bundle, TRUSTED))
    name = model.settings.embedding
    assert name is not None
    codes, scale = model.weight(name), model.weight(f"{name}.scale")
    rows = model.rows(name, [5, 0, 9])
    expected = codes[[5, 0, 9]].astype(np.float32) * scale[[5, 0, 9]].astype(np.float32)
    np.testing.assert_array_equal(rows, expected)
    answer = generate(model, Ask(prompt="hello", system="s", max_new_tokens=4), lambda text: None)
    assert len(answer.tokens) >= 1


@pytest.mark.parametrize("recipe", ["w8a8-static", "w4a8-gptq", "w4a16-gptq"])
def test_a_recipe_is_calibrated_on_a_folder_of_texts(
    recipe: str, capsys: Captured, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("The meeting starts at nine. " * 50)
    words = ["compile", str(tiny("tiny-llama")), "--target", "numpy", "--unsigned", "--validate"]
    assert run([*words, "--quant", recipe, "--data", "data", "-o", "a"]) == 0
    assert "warning" not in capsys.readouterr().err
    assert run([*words, "--quant", recipe, "-o", "b"]) == 0
    warned = capsys.readouterr().err
    assert "warning: decoder: calibrated on RANDOM inputs" in warned
    assert (tmp_path / "a").read_bytes() != (tmp_path / "b").read_bytes()


def test_the_report_says_what_quantisation_changed(capsys: Captured) -> None:
    words = ["compile", str(tiny("tiny-llama")), "--target", "numpy", "--unsigned", "--json"]
    assert run([*words, "--quant", "w8a8", "--validate", "-o", "a.mllm_bundle"]) == 0
    facts = json.loads(capsys.readouterr().out)
    found = {p["name"]: p["proof"] for p in facts["passes"]}
    assert found["quantise-linears"]["error"] > 1e-4


@pytest.mark.parametrize(
    ("words", "status", "line"),
    [
        (["--quant", "w8a9"], 2, "w8a9: error: no recipe of this name [MLC-Q001] (did you mean"),
        (["--quant", "w4a8-gptq", "--data", "gone"], 1, "gone: error: there is no such folder"),
    ],
)
def test_a_fault_is_one_line_and_leaves_nothing(
    words: list[str], status: int, line: str, capsys: Captured, tmp_path: Path
) -> None:
    model = str(tiny("tiny-llama"))
    assert run(["compile", model, "--target", "numpy", *words, "-o", "out.mllm_bundle"]) == status
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert line in lines[0]
    assert not (tmp_path / "out.mllm_bundle").exists()


def test_a_recipe_is_read_before_the_model(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="MLC-Q001"):
        compile_model(Request(model=tmp_path / "gone.onnx", quant="w8a9"))


def test_a_target_of_reals_refuses_codes_for_values(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text("[linears]\nbits = 8\n[values]\nbits = 8\n")
    request = Request(model=tiny("tiny-vit"), target="c", quant=str(tmp_path / "r.toml"))
    with pytest.raises(CompileError) as fault:
        compile_model(request)
    assert fault.value.code == "MLC-Q006"
    assert str(fault.value).startswith("r: error: the target 'c' has no values of codes")
