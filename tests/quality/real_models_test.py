"""The gates on a trained model in 8 bits: DINOv2-S on the photos that scikit-learn brings.

Rounding to nearest with a scale a token misses the default gate; the layer to keep is the one whose
error jumps.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from sklearn.datasets import load_sample_image

from mllm_compiler.cli.main import run

pytestmark = pytest.mark.slow

Captured = pytest.CaptureFixture[str]
RECIPE = '[linears]\nbits = 8\nactivations = "dynamic"\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Path("w8a8.toml").write_text(RECIPE)


def checked(model: str, capsys: Captured, *words: str) -> tuple[int, dict[str, Any]]:
    """The status, and what was found, of a model in 8 bits for the target numpy."""
    compiled = [
        "compile",
        model,
        "--target",
        "numpy",
        "--quant",
        "w8a8.toml",
        "-o",
        "q.mllm_bundle",
    ]
    assert run(compiled) == 0
    capsys.readouterr()
    options = ["--baseline", model, "--data", "data", "--json", *words]
    status = run(["check", "accuracy", "q.mllm_bundle", *options])
    return status, json.loads(capsys.readouterr().out)


def values(facts: dict[str, Any]) -> dict[str, float]:
    return {gate["name"]: gate["value"] for gate in facts["gates"]}


def test_dinov2_in_8_bits_keeps_the_layer_that_spoils_it(capsys: Captured) -> None:
    for name in ("china", "flower"):
        photo = Image.fromarray(load_sample_image(f"{name}.jpg"))
        side = min(photo.size) * 3 // 4
        for number, left in enumerate((0, photo.width - side)):
            photo.crop((left, 0, left + side, side)).save(f"data/{name}-{number}.png")
    words = ("--quant", "w8a8.toml", "--bisect", "better.toml")
    status, facts = checked("dinov2-s14", capsys, *words)
    assert status == 3
    assert 0.99 < values(facts)["feature_cosine"] < 0.999
    assert values(facts)["neighbours"] == 100
    assert facts["suspects"][0] == "vision:/encoder/layer.0/mlp/fc2/Add"
    assert facts["kept"] == facts["suspects"][: len(facts["kept"])]
    assert 0 < len(facts["kept"]) <= 4
