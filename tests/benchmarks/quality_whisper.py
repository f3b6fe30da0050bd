"""Word errors and likelihood of Whisper-base before and after quantisation, on the target c.

`..._wer_delta` is in points over `whisper_fp32_wer`; `..._speech_loss` is what a token of the
transcript costs, in nats, the decoder led through it. All graphs are quantised. No recipe looks at
a sound, so none is calibrated on what is scored.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.benchmarks.bundles import compiled, measured
from tests.benchmarks.sounds import spoken

MODEL = "whisper-base"
RECIPES = ("w8a8", "w4a8", "w4a16")


def figures() -> dict[str, float]:
    """The figures of each recipe."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        data, plain = spoken(folder / "spoken"), compiled(MODEL, folder / "fp32.mllm_bundle")
        found: dict[str, float] = {}
        for name in RECIPES:
            bundle = compiled(MODEL, folder / f"{name}.mllm_bundle", "--quant", name)
            values = measured(bundle, plain, data)
            found["whisper_fp32_wer"] = values["wer_float"]
            found["whisper_fp32_speech_loss"] = values["speech_loss_float"]
            found[f"whisper_{name}_wer_delta"] = values["wer_increase"]
            found[f"whisper_{name}_speech_loss"] = values["speech_loss"]
    return found
