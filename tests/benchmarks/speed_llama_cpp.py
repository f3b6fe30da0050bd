"""SmolLM2-135M in 4 bits beside llama.cpp: decoding and reading a prompt, measured in turns.

Of llama.cpp's 4-bit formats the one that is faster at each is the bar.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from models.recipe.gguf_weights import smollm2_file
from tests.benchmarks.figures import read_bandwidth
from tests.benchmarks.paired import in_turns, ratio

PEERS = Path(__file__).resolve().parent / "peers"
PYTHON = Path(__file__).resolve().parents[2] / ".venv-peers/bin/python"
FORMATS = ("Q4_0", "Q4_1")
ROUNDS = 9


def beside_llama_cpp(bundle: Path) -> dict[str, float]:
    """Ratios to llama.cpp, and the share of the read bandwidth that the weights of a step take."""
    programs: dict[str, list[str | Path]] = {
        "ours": [sys.executable, PEERS / "ours.py", bundle],
        **{name: [PYTHON, PEERS / "with_llama_cpp.py", smollm2_file(), name] for name in FORMATS},
    }
    found = in_turns(programs, ROUNDS)
    figures: dict[str, float] = {}
    for at, what in enumerate(("prefill", "decode")):
        ours = found["ours"][:, at]
        theirs = max((found[name][:, at] for name in FORMATS), key=np.median)
        figures |= ratio(ours, theirs).figures(f"{what}_ratio_llamacpp")
        figures[f"{what}_w4a8_tokens_per_s"] = float(np.median(ours))
        figures[f"{what}_llamacpp_tokens_per_s"] = float(np.median(theirs))
    read = figures["decode_w4a8_tokens_per_s"] * bundle.stat().st_size
    return figures | {"decode_w4a8_bandwidth_share": read / read_bandwidth()}
