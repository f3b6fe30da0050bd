"""What answers cost in memory: a part of `memory.py`.

`bytes_copied` is what the runtime copies from the output of one stage to the input of another,
while the meeting model looks at a frame and says 16 tokens. `soak_growth_bytes` is by how much the
resident memory grows in 1,000,000 steps over 1,000 conversations of a tiny decoder, the first tenth
left out; `soak_week_growth_bytes` in a week of meetings, the first day left out;
`soak_pressure_growth_bytes` in 50,000 events of twelve conversations in a pool and a file that are
too small for them, the first fifth left out.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.recipes import build_recipe, find_model
from runtime_stub import Model
from tests.runtime.soak import soak
from tests.runtime.text_models import language_module, write_small_pages, write_text_bundle


def figures() -> dict[str, float]:
    """Every figure of this area."""
    return {"bytes_copied": bytes_copied(), **growth()}


def growth() -> dict[str, float]:
    """Bytes that long runs add to what is in memory."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        talker = write_text_bundle(folder / "talker.mllm_bundle", *language_module())
        viewer = folder / "viewer.mllm_bundle"
        compile_model(Request(model=build_recipe("tiny-vlm", lambda line: None), output=viewer))
        steps = soak(folder, "soak_steps", talker, "1000000", "1000")
        week = soak(folder, "soak_week", viewer, "7")
        small = write_small_pages(folder / "small.mllm_bundle", page_tokens=64, tokens=320)
        pressure = soak(folder, "soak_pressure", small, folder, "50000", "1")
    return {
        "soak_growth_bytes": float(steps["growth_bytes"]),
        "soak_week_growth_bytes": float(week["growth_bytes"]),
        "soak_pressure_growth_bytes": float(pressure["growth_bytes"]),
    }


def bytes_copied() -> float:
    """Bytes between the stages of an answer about a frame."""
    pixels = np.random.default_rng(0).integers(0, 256, (480, 640, 3), dtype=np.uint8)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "out.mllm_bundle"
        compile_model(Request(model=find_model("meeting-vlm", lambda line: None), output=path))
        with Model.open(path, allow_unsigned=True) as model:
            tokens = list(model.generate(image=pixels, max_new_tokens=16))
            assert len(tokens) > 1
            return float(model.statistics.copied_bytes)
