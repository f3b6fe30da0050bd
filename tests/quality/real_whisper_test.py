"""The gates on Whisper-base in 8 bits, end to end: the target c beside the reference and float.

A LibriVox clip with its own transcript is scored. Where a code is a rounding away from the next,
sums in another order choose the other one, and layers carry that on. So the target c is held to the
reference as nearly as the reference is to itself on features that differ in their last bits.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from mllm_compiler.bundle.verify import LOOK
from mllm_compiler.cli.main import run
from mllm_compiler.generation.features import log_mel_of
from mllm_compiler.quality.features import cosine
from mllm_compiler.quality.sides import opened
from models.recipe.speech import clips

pytestmark = pytest.mark.slow

THRESHOLDS = (
    "[fidelity]\ncosine = 0.995\n[quality]\nwer_increase = 0\nspeech_loss_increase = 0.05\n"
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One clip and its words."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    clip = clips()[1]
    shutil.copy(clip.path, "data/clip.wav")
    Path("data/clip.txt").write_text(clip.transcript, encoding="utf-8")
    Path("gates.toml").write_text(THRESHOLDS, encoding="utf-8")


def compiled(bundle: str, *options: str) -> str:
    assert run(["compile", "whisper-base", "-o", bundle, *options]) == 0
    return bundle


def test_whisper_in_8_bits_passes_both_gates(capsys: pytest.CaptureFixture[str]) -> None:
    coded = compiled("c.mllm_bundle", "--quant", "w8a8")
    oracle = compiled("numpy.mllm_bundle", "--quant", "w8a8", "--target", "numpy")
    baseline = compiled("float.mllm_bundle")
    capsys.readouterr()
    words = ["--baseline", baseline, "--reference", oracle, "--data", "data", "--json"]
    assert run(["check", "accuracy", coded, *words, "--thresholds", "gates.toml"]) == 0
    gates = json.loads(capsys.readouterr().out)["gates"]
    fidelity = {g["name"]: g["value"] for g in gates if g["group"] == "fidelity"}
    assert fidelity["decoder/present.0.decoder.key"] > 1 - 1e-9
    assert 1 - fidelity["encoder/last_hidden_state"] < 3 * moved_by_last_bits(Path(oracle))


def moved_by_last_bits(oracle: Path) -> float:
    """1 - cosine of what the reference hears, where features move by 1e-6 of themselves."""
    with opened(oracle, LOOK) as side:
        assert side.settings.audio is not None
        features = log_mel_of(Path("data/clip.wav"), side.settings.audio)
        signs = np.random.default_rng(0).choice([-1e-6, 1e-6], features.shape)
        heard = [
            side.run("encoder", {"input_features": given})["last_hidden_state"]
            for given in (features, (features * (1 + signs)).astype(np.float32))
        ]
    return 1 - cosine(*heard)
