"""Several programs measured in turns, and ratios of their medians with an interval."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float64]
"""[rounds, numbers that a program answers with]"""

DRAWS = 4000


@dataclass(frozen=True)
class Ratio:
    """Of two medians, and where 95 of 100 resamplings of the rounds lie."""

    ratio: float
    low: float
    high: float

    def figures(self, name: str) -> dict[str, float]:
        """The ratio under a name, and its interval."""
        return {name: self.ratio, f"{name}_low": self.low, f"{name}_high": self.high}


def in_turns(programs: Mapping[str, Sequence[str | Path]], rounds: int) -> dict[str, Samples]:
    """What programs answer, a line a round: A B C, A B C and so on; the first round only warms up.

    Each stays loaded and waits for a line on its standard input, so that no two of them compute at
    the same time.
    """
    running = {
        name: subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for name, words in programs.items()
    }
    answers: dict[str, list[list[float]]] = {name: [] for name in running}
    for _ in range(rounds + 1):
        for name, process in running.items():
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            answers[name].append([float(word) for word in process.stdout.readline().split()])
    for process in running.values():
        process.communicate()
    return {name: np.array(rows[1:]) for name, rows in answers.items()}


def ratio(ours: Samples, theirs: Samples) -> Ratio:
    """Of the medians of rounds [n]; each resampling draws whole rounds, ours and theirs alike."""
    draws = np.random.default_rng(0).integers(0, len(ours), (DRAWS, len(ours)))
    found = np.median(ours[draws], 1) / np.median(theirs[draws], 1)
    low, high = np.quantile(found, (0.025, 0.975))
    return Ratio(float(np.median(ours) / np.median(theirs)), float(low), float(high))
