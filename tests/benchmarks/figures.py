"""What every benchmark says: the machine, the commit, named figures; as a table and as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]


def best_of(count: int, action: Callable[[], object]) -> float:
    """The shortest of several wall times, in seconds."""
    times: list[float] = []
    for _ in range(count):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def machine() -> dict[str, object]:
    """Processor, cores, and what was measured: read bandwidth and floating-point peak."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "read_gb_per_s": round(read_bandwidth() / 1e9, 2),
        "f32_gflop_per_s": round(float_peak() / 1e9, 1),
    }


def processor() -> str:
    """The processor's name."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def read_bandwidth() -> float:
    """Bytes a second that a sum over 512 MiB reads."""
    data = np.ones(64 << 20, np.float64)
    return data.nbytes / best_of(5, data.sum)


def float_peak() -> float:
    """Operations a second of a large fp32 matrix product."""
    a = np.ones((1536, 1536), np.float32)
    return 2 * 1536**3 / best_of(5, lambda: a @ a)


def commit() -> str:
    """The commit that is measured, with a mark where the tree differs from it."""
    words = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def publish(figures: dict[str, float]) -> int:
    """Prints the figures and, with `--json FILE`, writes them with machine and commit."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path, help="write the figures there too")
    write(figures, parser.parse_args().json, commit=commit())
    show(figures)
    return 0


def show(figures: dict[str, float]) -> None:
    """Prints the figures."""
    for name, value in figures.items():
        sys.stdout.write(f"{name:28} {value:12.4f}\n")


def write(figures: dict[str, float], target: Path | None, **facts: object) -> None:
    """Writes the figures, with the machine and what else is said of them, where a target is."""
    if target is None:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    rounded = {name: round(value, 4) for name, value in figures.items()}
    kept = {"machine": machine(), **facts, "figures": rounded}
    target.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
