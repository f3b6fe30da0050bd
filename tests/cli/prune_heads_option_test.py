"""`mllmc compile --prune prune-heads --data FOLDER`: heads go by what a folder of samples shows.

The samples are those of quantising (`tests/calibration` holds them to ONNX Runtime); a decoder with
a past is held to the one that reads all tokens at once.
"""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest

from mllm_compiler.bundle.verify import LOOK, open_bundle
from mllm_compiler.calibration import Model, write_samples
from mllm_compiler.cli.main import run
from mllm_compiler.generation.model import NumpyModel, open_model
from mllm_compiler.quantisation.recipe import Limits
from tests.backends.onnx_export.roundtrip import lifted
from tests.cli.recipes import tiny

HEARD = "prune-heads{heads=1 graph=encoder}"


@pytest.fixture(autouse=True)
def sounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of two sounds in the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("sounds").mkdir()
    for seed in range(2):
        noise = np.random.default_rng(seed).standard_normal(16000) * 3000
        with wave.open(f"sounds/{seed}.wav", "wb") as out:
            out.setnchannels(1)
            out.setsampwidth(2)
            out.setframerate(16000)
            out.writeframes(noise.astype("<i2").tobytes())


def compile_whisper(prune: str, output: str, *more: str) -> int:
    words = ["compile", str(tiny("tiny-whisper")), "--unsigned", "-o", output]
    return run([*words, "--prune", prune, *more])


def opened(bundle: str) -> NumpyModel:
    return open_model(open_bundle(Path(bundle), LOOK))


def test_sounds_prune_as_the_tensors_that_they_become() -> None:
    imported = lifted(tiny("tiny-whisper"))
    model = Model(imported.module, imported.spec, imported.store)
    write_samples(model, Path("sounds"), Path("tensors"), Limits(), pytest.fail)
    assert compile_whisper(HEARD, "sounds.out", "--data", "sounds") == 0
    assert compile_whisper(HEARD, "tensors.out", "--data", "tensors") == 0
    assert Path("sounds.out").read_bytes() == Path("tensors.out").read_bytes()
    assert compile_whisper(HEARD, "random.out") == 0
    assert Path("sounds.out").read_bytes() != Path("random.out").read_bytes()


def test_heads_without_data_are_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert compile_whisper(HEARD, "random.out") == 0
    assert "encoder: calibrated on RANDOM inputs" in capsys.readouterr().err


def test_a_decoder_with_a_past_keeps_the_heads_of_the_one_without() -> None:
    words = ("--data", "sounds", "--target", "numpy")
    assert compile_whisper("prune-heads{heads=1}", "out.bundle", *words) == 0
    model, ids = opened("out.bundle"), [1, 5, 6, 9, 7]
    heard = np.random.default_rng(3).standard_normal(_hidden_shape(model)).astype(np.float32)

    def first(count: int) -> dict[str, np.ndarray]:
        given = {"input_ids": np.array([ids[:count]]), "encoder_hidden_states": heard}
        return model.runner.run("decoder", given)

    made, whole = first(3), first(5)["logits"]
    cache = {name.replace("present", "past_key_values"): made[name] for name in made}
    del cache["logits"]
    for at in (3, 4):
        given = cache | {"input_ids": np.array([[ids[at]]])}
        made = model.runner.run("decoder_with_past", given)
        np.testing.assert_allclose(made["logits"][0, -1], whole[0, at], rtol=1e-4, atol=1e-5)
        cache |= {n.replace("present", "past_key_values"): made[n] for n in made if n != "logits"}


def _hidden_shape(model: NumpyModel) -> tuple[int, ...]:
    graph = next(g for g in model.entry("decoder").inputs if g.name == "encoder_hidden_states")
    return tuple(1 if isinstance(extent, str) else extent for extent in graph.shape)


def test_a_recipe_is_calibrated_on_the_pruned_model() -> None:
    """Its decoder is given what the pruned encoder says, by caches with fewer heads."""
    words = ("--data", "sounds", "--quant", "w8a8-static")
    results: list[dict[str, np.ndarray]] = []
    pixels = np.random.default_rng(0).standard_normal((1, 8, 40)).astype(np.float32)
    for target in ("c", "numpy"):
        assert compile_whisper("prune-heads{heads=1}", target, *words, "--target", target) == 0
        np.savez("in.npz", input_features=pixels)
        said = ["run", target, "--allow-unsigned", "--entry", "encoder", "--inputs", "in.npz"]
        assert run([*said, "--outputs", "out.npz"]) == 0
        results.append(dict(np.load("out.npz")))
    for name, array in results[1].items():
        np.testing.assert_allclose(results[0][name], array, rtol=1e-4, atol=1e-5)
