"""Problems for the memory planner: seven published ones, and a long chain of layers."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from mllm_compiler.passes.arena import Interval

FOLDER = Path(__file__).resolve().parent / "planner"


def hard_instances() -> dict[str, list[Interval]]:
    """The instances of MiniMalloc in `planner/`, by letter."""
    found: dict[str, list[Interval]] = {}
    for path in sorted(FOLDER.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            found[path.name.partition(".")[0]] = [
                Interval(row["id"], int(row["lower"]), int(row["upper"]) - 1, int(row["size"]))
                for row in csv.DictReader(file)
            ]
    return found


def chain(count: int) -> list[Interval]:
    """A buffer a stage: most live for some stages, one in thirty for up to 2,000."""
    random = np.random.default_rng(0)
    long = random.random(count) > 0.97
    lives = np.where(long, random.integers(50, 2000, count), random.geometric(0.3, count))
    sizes = 64 * random.integers(1, 4096, count)
    return [
        Interval(str(at), at, min(count, at + int(life)), int(size))
        for at, (life, size) in enumerate(zip(lives, sizes, strict=True))
    ]
