"""What heads are worth: DINOv2-S/14 and Whisper-base's encoder without a part of theirs.

`mllmc compile --prune prune-heads{..} --data FOLDER`, target c. Calibrated is on pictures and
sounds that are not scored; scored is on those of `quality_dinov2_w8a8.py` and
`quality_whisper.py`. Heads go by `score=error` unless a name says `entropy`; outputs are fitted
again. `right` and `same` are those of `quality_dinov2.py`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from mllm_compiler.bundle.verify import Policy
from mllm_compiler.quality.sides import opened
from tests.benchmarks.bundles import compiled, measured
from tests.benchmarks.photos import crops, mean_cosine, nearest, other_pictures, right_neighbours
from tests.benchmarks.sounds import other_sounds, spoken

EYES, SIZE, EARS = "dinov2-s14", 224, "whisper-base"
WAYS = {"": "error", "_entropy": "entropy"}
"""How heads are chosen, by what the name of a figure says of it."""

Array = np.ndarray[Any, np.dtype[Any]]


def figures() -> dict[str, float]:
    """The figures of both models."""
    with tempfile.TemporaryDirectory() as scratch:
        return eyes(Path(scratch)) | ears(Path(scratch))


def eyes(folder: Path) -> dict[str, float]:
    """Features of DINOv2-S with five and four of six heads."""
    images, photo = crops(SIZE)
    data = other_pictures(folder / "pictures")
    whole = features(compiled(EYES, folder / "eyes.mllm_bundle"), images)
    found: dict[str, float] = {}
    for heads in (5, 4):
        for way, score in WAYS.items():
            made = features(pruned(EYES, heads, score, data, folder), images)
            found |= {
                f"heads_dinov2_{heads}{way}_cosine": mean_cosine(made, whole),
                f"heads_dinov2_{heads}{way}_right": right_neighbours(made, photo),
                f"heads_dinov2_{heads}{way}_same": int((nearest(made) == nearest(whole)).sum()),
            }
    return found


def ears(folder: Path) -> dict[str, float]:
    """Words and likelihood of Whisper-base with six of eight heads of the encoder."""
    data, calibration = spoken(folder / "spoken"), other_sounds(folder / "sounds")
    plain = compiled(EARS, folder / "ears.mllm_bundle")
    found: dict[str, float] = {}
    for way, score in WAYS.items():
        values = measured(pruned(EARS, 6, score, calibration, folder), plain, data)
        found[f"heads_whisper_6{way}_wer_delta"] = values["wer_increase"]
        found[f"heads_whisper_6{way}_loss_delta"] = values["speech_loss_increase"]
    return found


def pruned(model: str, heads: int, score: str, data: Path, folder: Path) -> Path:
    """A model's encoder with some heads."""
    graph = {EYES: "vision", EARS: "encoder"}[model]
    options = f"prune-heads{{heads={heads} score={score} graph={graph}}}"
    bundle = folder / "pruned.mllm_bundle"
    return compiled(model, bundle, "--prune", options, "--data", str(data))


def features(bundle: Path, images: Array) -> Array:
    """The features of the class token: [n, features]."""
    with opened(bundle, Policy(allow_unsigned=True)) as side:
        runs = [side.run("vision", {"pixel_values": image[None]}) for image in images]
    return np.concatenate([results["last_hidden_state"][:, 0] for results in runs])
