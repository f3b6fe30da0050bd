"""What is compiled from an exporter's folder answers as what is compiled from `model.toml`."""

from __future__ import annotations

import json
import wave
from pathlib import Path

import numpy as np
import pytest

from mllm_compiler.cli.main import run
from tests.cli.recipes import tiny
from tests.importer import exported_folders as folders

Captured = pytest.CaptureFixture[str]


def answer(capsys: Captured, model: Path, target: str, *words: str) -> dict[str, object]:
    bundle = f"{model.name}-{target}.mllm_bundle"
    assert run(["compile", str(model), "--target", target, "-o", bundle]) == 0
    capsys.readouterr()
    assert run(["run", bundle, *words, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    return {key: said[key] for key in ("text", "tokens")}


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny("tiny-llama"), tiny("tiny-whisper")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("target", ["c", "numpy"])
def test_a_language_model(target: str, tmp_path: Path, capsys: Captured) -> None:
    words = ("--prompt", "the meeting user", "--max-new-tokens", "8")
    expected = answer(capsys, tiny("tiny-llama"), target, *words)
    assert expected["tokens"]
    for make in (folders.optimum_llama, folders.genai_llama):
        assert answer(capsys, make(tmp_path / make.__name__), target, *words) == expected


def test_a_trio_over_sound(tmp_path: Path, capsys: Captured) -> None:
    with wave.open(str(tmp_path / "a.wav"), "wb") as out:
        out.setparams((1, 2, 16000, 0, "NONE", ""))
        out.writeframes((np.sin(np.arange(16000) / 9) * 9000).astype(np.int16).tobytes())
    words = ("--audio", str(tmp_path / "a.wav"), "--max-new-tokens", "8")
    expected = answer(capsys, tiny("tiny-whisper"), "c", *words)
    assert expected["tokens"]
    folder = folders.optimum_whisper(tmp_path / "whisper")
    assert answer(capsys, folder, "c", *words) == expected


def test_a_bare_file_with_a_cache_compiles_for_c(tmp_path: Path, capsys: Captured) -> None:
    file = tiny("tiny-llama") / "model.onnx"
    assert run(["compile", str(file), "-o", "bare.mllm_bundle", "--json"]) == 0
    capsys.readouterr()
    assert run(["bundle", "inspect", "bare.mllm_bundle", "--json"]) == 0
    assert '"decode"' in capsys.readouterr().out
