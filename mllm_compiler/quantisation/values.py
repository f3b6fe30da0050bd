"""Encodings of values: what a code of 8 or 16 bits means, and how far a value's codes reach.

A value has one scale and one zero point: real = scale (code - zero_point), codes are signed. The
range is taken from samples of the value: all of it, all but the rarest, or what makes the squared
error of its codes least.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mllm_compiler.quantisation.recipe import MSE, PERCENTILE

Array = NDArray[Any]
Range = tuple[float, float]
"""The least and the largest number; 0 lies between them."""

RAREST: Final = 0.01
"""The percentage of numbers at each end that `percentile` leaves out."""

PARTS: Final = tuple(float(p) for p in np.arange(1.0, 0.29, -0.05))
"""What `mse` tries to multiply the range by."""

ENOUGH: Final = 1 << 16
"""Numbers of a value that a range is searched on; they lie evenly over all of them."""

UNSEEN: Final = -1e6
"""A number below hides a score from a softmax, and is no measure of how far a value reaches."""

APART: Final = 16.0
"""How far below the least other number a hidden one is put: e^-16 is nothing in 16 bits."""

ALONE: Final = 64.0
"""How far below 0 where there is no other number: a mask, which is added to scores."""

LEAST: Final = float(np.float32(1e-9))
"""The least scale; vendors refuse those that are not normal in single precision."""


@dataclass(frozen=True)
class Encoding:
    """What the codes of a value mean.

    Attributes:
        scale: Of single precision.
        zero_point: The code of 0.
        bits: 8 or 16.
    """

    scale: float
    zero_point: int
    bits: int

    @classmethod
    def of(cls, reach: Range, bits: int, *, symmetric: bool) -> Encoding:
        """The encoding whose codes reach over a range; a symmetric one has the zero point 0.

        Those of a value that was always 0 reach to 1: HTP rotates by sines of a larger scale wrong.
        """
        low, high = reach if any(reach) else (0.0, 1.0)
        lowest, highest = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        if symmetric:
            return cls(_stored(max(-low, high) / highest), 0, bits)
        scale = _stored((high - low) / (highest - lowest))
        zero = round(lowest - low / scale)
        return cls(scale, min(max(zero, lowest), highest), bits)

    @property
    def codes(self) -> range:
        """The codes there are."""
        return range(-(1 << (self.bits - 1)), 1 << (self.bits - 1))

    @property
    def reach(self) -> Range:
        """The least and the largest number that have codes."""
        codes = self.codes
        return self.real(codes[0]), self.real(codes[-1])

    def real(self, code: int) -> float:
        """What a code means."""
        return self.scale * (code - self.zero_point)

    def encoded(self, numbers: Array) -> Array:
        """The nearest codes of numbers, halves to even; int8 or int16 of their shape."""
        rounded = np.rint(numbers / np.float32(self.scale))
        codes = np.clip(rounded + self.zero_point, self.codes[0], self.codes[-1])
        return codes.astype(np.int8 if self.bits == 8 else np.int16)

    def decoded(self, codes: Array) -> Array:
        """What codes mean, in single precision."""
        return (codes.astype(np.float32) - np.float32(self.zero_point)) * np.float32(self.scale)


def reach_of(
    arrays: Sequence[Array],
    method: str,
    encode: Callable[[Range], Encoding],
    unseen: float = UNSEEN,
) -> Range:
    """How far a value's codes should reach.

    Args:
        arrays: The value on each sample.
        method: `minmax`, `percentile` or `mse`.
        encode: The encoding of a range, for `mse`.
        unseen: Numbers below hide a score.
    """
    flat = np.concatenate([a.reshape(-1) for a in arrays]).astype(np.float32)
    seen = flat[flat > unseen]
    low, high = float(seen.min(initial=0)), float(seen.max(initial=0))
    if method != "minmax" and seen.size:
        low, high = _narrowed(seen[:: -(-seen.size // ENOUGH)], (low, high), method, encode)
    if seen.size == flat.size:
        return low, high
    return (low - APART if low < high else -ALONE), high


def union(ranges: Sequence[Range]) -> Range:
    """The least range that holds some others."""
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _narrowed(
    numbers: Array, whole: Range, method: str, encode: Callable[[Range], Encoding]
) -> Range:
    if method == PERCENTILE:
        low, high = np.percentile(numbers, [RAREST, 100 - RAREST])
        return min(0.0, float(low)), max(0.0, float(high))
    assert method == MSE
    tried = [(whole[0] * part, whole[1] * part) for part in PARTS]
    return min(tried, key=lambda one: _error(numbers, encode(one)))


def _error(numbers: Array, encoding: Encoding) -> float:
    return float(np.square(encoding.decoded(encoding.encoded(numbers)) - numbers).sum())


def _stored(scale: float) -> float:
    """A scale in single precision."""
    return float(np.float32(max(scale, LEAST)))
