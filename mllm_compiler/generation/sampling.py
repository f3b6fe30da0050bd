"""Choosing the next token, as `runtime_stub/src/sampling.h` defines it.

The same logits, settings and seed give the same token here and there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

MASK = (1 << 64) - 1


@dataclass
class Random:
    """xoshiro256** (Blackman & Vigna 2018), its state four outputs of splitmix64 from the seed."""

    seed: int
    _state: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        at = self.seed & MASK
        for _ in range(4):
            at = (at + 0x9E3779B97F4A7C15) & MASK
            z = at
            z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
            z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
            self._state.append(z ^ z >> 31)

    def next(self) -> int:
        """The next 64 bits."""
        s = self._state
        result = (_rotate((s[1] * 5) & MASK, 7) * 9) & MASK
        shifted = (s[1] << 17) & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= shifted
        s[3] = _rotate(s[3], 45)
        return result

    def draw(self) -> float:
        """A number in [0, 1)."""
        return (self.next() >> 11) * 2.0**-53


@dataclass
class Sampler:
    """Greedy where the temperature is 0, else top-p.

    Attributes:
        temperature: Divides the logits.
        top_p: The shortest prefix of the most probable tokens that reaches this is drawn from.
        seed: Of the generator.
        suppress: Tokens that are never chosen.
        begin_suppress: Tokens that are not chosen first.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    suppress: frozenset[int] = frozenset()
    begin_suppress: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self._random = Random(self.seed)

    def choose(self, logits: NDArray[np.float32], *, first: bool) -> int:
        """The next token."""
        refused = {*self.suppress, *(self.begin_suppress if first else ())}
        values = logits.astype(np.float64)
        values[np.isnan(values)] = -np.inf
        values[[token for token in sorted(refused) if token < len(values)]] = -np.inf
        best = int(np.argmax(values))
        if self.temperature <= 0.0 or np.isneginf(values[best]):
            return best
        weights = fixed_exp((values - values[best]) / self.temperature)
        return self._draw(weights)

    def _draw(self, weights: NDArray[np.float64]) -> int:
        order = np.lexsort((np.arange(len(weights)), -weights))
        order = order[weights[order] > 0.0]
        whole = float(np.cumsum(weights)[-1])
        sums = np.cumsum(weights[order])
        kept = min(int(np.searchsorted(sums, self.top_p * whole)) + 1, len(order))
        draw = self._random.draw() * float(sums[kept - 1])
        return int(order[min(int(np.searchsorted(sums[:kept], draw, side="right")), kept - 1)])


def fixed_exp(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """exp(x) for x <= 0 by the same additions and products of doubles as in C."""
    low = ~(x > -700.0)
    safe = np.where(low, 0.0, x)
    n = np.floor(safe * 1.4426950408889634 + 0.5)
    r = (safe - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10
    total = np.ones_like(r)
    for k in range(13, 0, -1):
        total = 1.0 + total * r / k
    return np.where(low, 0.0, np.ldexp(total, n.astype(np.int64)))


def _rotate(x: int, by: int) -> int:
    return ((x << by) | (x >> (64 - by))) & MASK
