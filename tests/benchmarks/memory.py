"""How near each model's memory plan comes to its lower bound.

python tests/benchmarks/memory.py --json docs/figures/memory.json
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.recipes import find_model
from tests.benchmarks.figures import publish

MODELS = ("smollm2-135m", "dinov2-s14", "whisper-base", "meeting-vlm")


def main() -> int:
    """Plan every real model."""
    figures: dict[str, float] = {}
    gaps: list[float] = []
    for name in MODELS:
        folder = find_model(name, lambda line: None)
        with tempfile.TemporaryDirectory() as scratch:
            request = Request(model=folder, output=Path(scratch) / "out.mllm_bundle")
            manifest = compile_model(request).manifest
        assert manifest is not None
        figures[f"plan_mb_{name}"] = manifest.plan.plan / 1e6
        gaps.append(manifest.plan.gap)
    return publish({"planner_gap_max": max(gaps), **figures})


if __name__ == "__main__":
    sys.exit(main())
