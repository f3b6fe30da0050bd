"""What 4 bits and a cache of 8 cost meeting-vlm: attributes of frames that it says right, on c.

Asked are 200 held-out frames, whose photos no training frame has, for six attributes each. The
answers are greedy, and those that `mllmc run` gives. Calibrated is on frames with other seeds and
their captions.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

import numpy as np

from runtime_stub import Model
from tests.benchmarks.figures import ROOT
from tests.benchmarks.quality_smollm2 import RECIPES

MODEL = "meeting-vlm"
RECIPE = RECIPES / "meeting_vlm_w4a8_kv8.toml"
FRAMES, CALIBRATED_ON = 200, range(900_000, 900_032)

sys.path.insert(0, str(ROOT / "models" / MODEL))
drawn = import_module("frames")


def figures() -> dict[str, float]:
    """The attributes right in fp32, in percent, and how many points the recipe loses."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        real = points(compiled(None, folder))
        coded = points(compiled(RECIPE, folder))
    return {"vlm_fp32_points": real, "vlm_w4a8_delta_points": real - coded}


def compiled(recipe: Path | None, folder: Path) -> Path:
    """The bundle of the model under a recipe."""
    bundle = folder / "model.mllm_bundle"
    words = [sys.executable, "-m", "mllm_compiler.cli", "compile", MODEL, "--unsigned"]
    words += [] if recipe is None else ["--quant", str(recipe), "--data", str(calibration(folder))]
    subprocess.run([*words, "-o", str(bundle)], check=True, stdout=subprocess.DEVNULL)
    return bundle


def calibration(folder: Path) -> Path:
    """A folder of frames and their captions."""
    data = folder / "data"
    data.mkdir()
    for seed in CALIBRATED_ON:
        drawn.frame(seed).save(data / f"{seed}.png")
        (data / f"{seed}.txt").write_text(drawn.meeting(seed).caption(), encoding="utf-8")
    return data


def points(bundle: Path) -> float:
    """The share of attributes that a model says right, in percent."""
    rights = list[tuple[bool, ...]]()
    with Model.open(bundle, allow_unsigned=True) as model:
        for seed in range(drawn.HELD_OUT, drawn.HELD_OUT + FRAMES):
            said = "".join(piece.text for piece in model.generate(image=picture(seed)))
            rights.append(drawn.meeting(seed).agreement(said.strip()))
    return 100 * float(np.mean(rights))


def picture(seed: int) -> np.ndarray:
    """A frame as the model takes it: [height, width, 3] of bytes."""
    return np.asarray(drawn.frame(seed), np.uint8)
