"""Gates: a metric, its value, what it must reach, and whether it does."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mllm_compiler.quality.thresholds import LEAST, Thresholds


@dataclass(frozen=True, kw_only=True)
class Gate:
    """One line of the answer.

    Attributes:
        group: `fidelity`, `layers` or `quality`.
        name: The metric, or the output or node that a cosine is of.
        value: What was measured.
        threshold: What it must reach; None where it is only reported.
        least: Whether the threshold is the least allowed value; else it is the most.
    """

    group: str
    name: str
    value: float
    threshold: float | None
    least: bool

    @property
    def passes(self) -> bool:
        """Whether it does; what is not a finite number never does."""
        if not math.isfinite(self.value):
            return False
        if self.threshold is None:
            return True
        return self.value >= self.threshold if self.least else self.value <= self.threshold

    @property
    def verdict(self) -> str:
        """`passed`, `failed`, or `reported` where nothing is asked."""
        if not self.passes:
            return "failed"
        return "reported" if self.threshold is None else "passed"


def quality_gates(metrics: Mapping[str, float], thresholds: Thresholds) -> list[Gate]:
    """A gate for each metric."""
    return [
        Gate(
            group="quality",
            name=name,
            value=value,
            threshold=thresholds.of("quality", name),
            least=name in LEAST,
        )
        for name, value in metrics.items()
    ]


def cosine_gates(
    group: str, cosines: Iterable[tuple[str, float]], thresholds: Thresholds
) -> list[Gate]:
    """A gate for each cosine, the worst first; what is not a number is the worst."""
    worst = sorted(cosines, key=lambda pair: -math.inf if math.isnan(pair[1]) else pair[1])
    threshold = thresholds.of(group, "cosine")
    return [
        Gate(group=group, name=name, value=value, threshold=threshold, least=True)
        for name, value in worst
    ]
