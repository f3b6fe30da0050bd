"""Word errors and likelihood of Whisper-base before and after quantisation, on the target c.

`..._wer_delta` is in points over `whisper_fp32_wer`; `..._speech_loss` is what a token of the
transcript costs, in nats, the decoder led through it; `..._bits` is what a weight takes. All
graphs are quantised. `rounded_` recipes look at no sound; the others are calibrated on meetings,
short sounds, and quotations read aloud, with the words that the float model hears in them: none of
these voices is scored.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from mllm_compiler.bundle.verify import Policy
from mllm_compiler.generation.loop import Ask
from mllm_compiler.passes.quantised_products import bits_per_weight
from mllm_compiler.quality.sides import opened
from mllm_compiler.quantised_bundle import read_record
from tests.benchmarks.bundles import compiled, measured
from tests.benchmarks.quality_smollm2 import RECIPES as FOLDER
from tests.benchmarks.read_aloud import read_aloud
from tests.benchmarks.sounds import meetings, other_sounds, spoken

MODEL = "whisper-base"
HEAD = "proj_out"
RECIPES: dict[str, str | Path] = {
    "w8a8": "w8a8",
    "rounded_w4a8": "w4a8",
    "rounded_w4a16": "w4a16",
    "w4a8": FOLDER / "whisper_w4a8.toml",
    "w4a16": FOLDER / "whisper_w4a16.toml",
}


def figures() -> dict[str, float]:
    """The figures of each recipe."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        data, plain = spoken(folder / "spoken"), compiled(MODEL, folder / "fp32.mllm_bundle")
        heard = read_aloud(meetings(other_sounds(folder / "heard")))
        add_words(heard, plain)
        found: dict[str, float] = {}
        for name, recipe in RECIPES.items():
            options = ["--quant", str(recipe)]
            options += ["--data", str(heard)] if isinstance(recipe, Path) else []
            bundle = compiled(MODEL, folder / f"{name}.mllm_bundle", *options)
            values = measured(bundle, plain, data)
            found["whisper_fp32_wer"] = values["wer_float"]
            found["whisper_fp32_speech_loss"] = values["speech_loss_float"]
            found[f"whisper_{name}_wer_delta"] = values["wer_increase"]
            found[f"whisper_{name}_speech_loss"] = values["speech_loss"]
            found[f"whisper_{name}_bits"] = block_bits(bundle)
    return found


def add_words(folder: Path, plain: Path) -> None:
    """Writes beside each sound of a folder the words that a model hears in it."""
    with opened(plain, Policy(allow_unsigned=True)) as side:
        for sound in sorted(folder.glob("*.wav")):
            words = side.reply(Ask(audio=sound)).strip()
            sound.with_suffix(".txt").write_text(words, encoding="utf-8")


def block_bits(bundle: Path) -> float:
    """Bits of a weight of the blocks: each once, scales and zero points counted, no head."""
    products = read_record(bundle).products
    return bits_per_weight([*{p.weight: p for p in products if HEAD not in p.name}.values()])
