"""Drift: activations that reach further, or less far, on newer samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LIMIT = 0.25
"""The part by which an extent may be off before it counts as drifted."""


@dataclass(frozen=True)
class Drift:
    """An activation that reaches further, or less far, than when it was calibrated.

    Attributes:
        name: The product that reads it.
        before: Its static scale, or how far it usually reached, in the bundle.
        now: The same on the new samples.
    """

    name: str
    before: float
    now: float

    @property
    def factor(self) -> float:
        """How many times as far it reaches now."""
        return self.now / self.before


def drifts(
    before: Mapping[str, float], now: Mapping[str, float], limit: float = LIMIT
) -> list[Drift]:
    """What drifted, worst first: a static scale cuts off what grew and is coarse for the rest."""
    pairs = [Drift(name, before[name], now[name]) for name in now if before.get(name)]
    far = [d for d in pairs if max(d.factor, 1 / d.factor if d.factor else 0) > 1 + limit]
    return sorted(far, key=lambda d: (-abs(d.factor - 1), d.name))
