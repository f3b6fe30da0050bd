"""How near memory plans come to their lower bounds: those of models, and of hard problems.

python tests/benchmarks/memory.py --json docs/figures/memory.json

`hard_...` are seven instances of MiniMalloc's, as a ratio to the bound: with so many steps of the
search as compiling takes, with the search given most of 30 seconds, and without it (`hard_greedy`);
`plan_10k_s` is the time of a plan of 10,000 buffers. Other areas are modules beside this one.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.passes import arena
from mllm_compiler.recipes import find_model
from tests.benchmarks import (
    memory_generation,
    memory_joint,
    memory_kv,
    memory_peak,
    memory_pool,
)
from tests.benchmarks.buffers import chain, hard_instances
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
    areas = memory_joint.figures() | hard_problems() | memory_kv.figures()
    areas |= memory_peak.figures() | memory_generation.figures() | memory_pool.figures()
    return publish({"planner_gap_max": max(gaps), **figures, **areas})


def hard_problems() -> dict[str, float]:
    """Ratios to the bound on published instances, and the time of a large problem."""
    budgets = {"greedy": 0, "mean": arena.STEPS, "long_mean": 100_000}
    figures: dict[str, float] = {}
    for name, steps in budgets.items():
        start = time.perf_counter()
        plans = [arena.plan(buffers, steps=steps) for buffers in hard_instances().values()]
        figures[f"hard_{name}_ratio"] = sum(plan.gap + 1 for plan in plans) / len(plans)
        figures[f"hard_{name}_s"] = (time.perf_counter() - start) / len(plans)
    large, start = chain(10_000), time.perf_counter()
    figures["plan_10k_gap"] = arena.plan(large).gap
    return figures | {"plan_10k_s": time.perf_counter() - start}


if __name__ == "__main__":
    sys.exit(main())
