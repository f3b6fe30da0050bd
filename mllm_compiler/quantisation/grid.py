"""Grids of a matrix: how its reals become codes, scales and zero points, and back.

A matrix is [N, K], as `mllm.linear` multiplies by it; blocks lie along K, and the last one of a row
may be cut short. What a code means is what `mllm.dequantize` says: (code - zero) scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Integers = NDArray[np.integer[Any]]
Element = TypeVar("Element", bound=np.generic)

SCALE_BITS = 16
ELEMENTS_AT_ONCE = 1 << 18
PARTS = (1.2, 1.1, 1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
"""What `mse_clipped` tries to multiply each end of a block's range by."""
FITS = 2
"""How often it then fits the scales to their codes."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A format of weights: codes of so many bits, scales shared by blocks along K.

    Attributes:
        bits: of a code, 2 to 8.
        block_size: weights that share a scale; None for one scale a row (output channel).
        symmetric: signed codes without zero points; else unsigned ones with a zero point of as
            many bits.
    """

    bits: int
    block_size: int | None = None
    symmetric: bool = True

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= 8 or (self.block_size is not None and self.block_size < 1):
            raise ValueError(f"a grid has 2 to 8 bits and blocks of at least 1: {self}")

    @property
    def lowest(self) -> int:
        """The least code."""
        return -(1 << (self.bits - 1)) if self.symmetric else 0

    @property
    def highest(self) -> int:
        """The largest code."""
        return self.lowest + (1 << self.bits) - 1

    def block(self, k: int) -> int:
        """Weights in a block of a row of `k`."""
        return k if self.block_size is None else self.block_size

    def blocks(self, k: int) -> int:
        """Blocks of a row of `k`."""
        return -(-k // self.block(k))


@dataclass(frozen=True)
class Codes:
    """A quantised matrix.

    Attributes:
        grid: what its codes mean.
        codes: [N, K], int8 where symmetric, else uint8; one a byte, whatever their bits.
        scale: [N, G], of values that float16 has.
        zero: [N, G] of the dtype of the codes, or None where symmetric.
    """

    grid: Grid
    codes: Integers
    scale: Floats
    zero: Integers | None = None

    def dequantised(self) -> Floats:
        """The matrix that the codes mean, [N, K]."""
        block, k = self.grid.block(self.codes.shape[1]), self.codes.shape[1]
        centred = self.codes.astype(np.float32)
        if self.zero is not None:
            centred -= spread(self.zero, block, k)
        return centred * spread(self.scale, block, k)

    def bits(self) -> int:
        """Bits of all that is stored: codes, 16 for each scale, zero points."""
        zeros = 0 if self.zero is None else self.zero.size
        return (self.codes.size + zeros) * self.grid.bits + self.scale.size * SCALE_BITS


def spread(parameter: NDArray[Element], block: int, k: int) -> NDArray[Element]:
    """A parameter of blocks, [N, G], at each of their weights, [N, K]."""
    return np.repeat(parameter, block, axis=1)[:, :k]


def in_blocks(matrix: NDArray[Element], grid: Grid) -> NDArray[Element]:
    """[N, K] as [N, G, block]; what the last block lacks is 0."""
    n, k = matrix.shape
    block, count = grid.block(k), grid.blocks(k)
    padded = np.pad(matrix, ((0, 0), (0, block * count - k)))
    return padded.reshape(n, count, block)


def encode(weight: Floats, grid: Grid, scale: Floats, zero: Integers | None) -> Codes:
    """The nearest codes of a matrix [N, K] under given scales and zero points [N, G]."""
    k = weight.shape[1]
    codes = np.rint(weight / spread(scale, grid.block(k), k))
    if zero is not None:
        codes += spread(zero, grid.block(k), k)
    kind = np.int8 if grid.symmetric else np.uint8
    return Codes(grid, codes.clip(grid.lowest, grid.highest).astype(kind), scale, zero)


def storable(scale: NDArray[np.floating[Any]]) -> Floats:
    """Scales as float16 holds them; 1 where that is 0."""
    tops = np.finfo(np.float16).max
    kept = np.clip(scale, 0, tops).astype(np.float16).astype(np.float32)
    return np.where(kept == 0, np.float32(1), kept)


def round_to_nearest(weight: Floats, grid: Grid) -> Codes:
    """Codes whose scales reach over the whole range of each block, which holds 0.

    Symmetric: scale = max|w| / largest code. Otherwise scale = (max - min) / (2^bits - 1), zero =
    round(-min / scale).
    """
    scale, zero = _parameters(in_blocks(weight, grid), grid, 1.0, 1.0)
    return encode(weight, grid, scale, zero)


def mse_clipped(weight: Floats, grid: Grid, importance: Floats | None = None) -> Codes:
    """Codes whose scales minimise the squared error of each block over a search of clipped ranges.

    The ends of a block's range are multiplied by `PARTS`, in turn where there are zero points, and
    values beyond are clamped; each scale is then fitted to its codes by least squares.

    Args:
        weight: [N, K].
        grid: the format.
        importance: [K], what the squared error of each input channel counts, such as the mean
            square of its activations; alike where None.
    """
    counts = np.ones(weight.shape[1], np.float32) if importance is None else importance
    rows = max(1, ELEMENTS_AT_ONCE // max(1, weight.shape[1]))
    pieces = [weight[i : i + rows] for i in range(0, len(weight), rows)] or [weight]
    found = [_searched(piece, grid, counts) for piece in pieces]
    scale = np.concatenate([search.scale for search in found])
    zeros = [search.zero for search in found if search.zero is not None]
    return encode(weight, grid, scale, np.concatenate(zeros) if zeros else None)


def _parameters(
    blocks: Floats, grid: Grid, low_part: float | Floats, high_part: float | Floats
) -> tuple[Floats, Integers | None]:
    """Scale and zero point, [N, G], of the ranges of blocks [N, G, block], times the parts."""
    low = np.minimum(blocks.min(-1), 0) * low_part
    high = np.maximum(blocks.max(-1), 0) * high_part
    if grid.symmetric:
        return storable(np.maximum(high, -low) / grid.highest), None
    scale = storable((high - low) / grid.highest)
    zero = np.rint(-low / scale).clip(grid.lowest, grid.highest)
    return scale, zero.astype(np.uint8)


class _Search:
    """The best scales and zero points of some rows so far, [N, G] each.

    Attributes:
        scale: the scales.
        zero: the zero points, or None where symmetric.
    """

    def __init__(self, weight: Floats, grid: Grid, importance: Floats) -> None:
        self.grid, self.blocks = grid, in_blocks(weight, grid)
        self.weights = in_blocks(importance[None], grid)
        self.scale, self.zero = _parameters(self.blocks, grid, 1.0, 1.0)
        self.low = self.high = np.ones_like(self.scale)
        self.error = self._error(self.scale, self.zero)

    def draw_in(self) -> None:
        """Tries all parts at both ends together, then, with zero points, at each end by itself."""
        parts = [np.full_like(self.low, part) for part in PARTS]
        for part in parts:
            self._try(part, part)
        for _ in range(0 if self.grid.symmetric else 2):
            for part in parts:
                self._try(part, self.high)
            for part in parts:
                self._try(self.low, part)

    def fit(self) -> None:
        """Fits the scales to their codes by least squares."""
        levels = _levels(self.blocks, self.grid, self.scale, self.zero)
        weighted = self.weights * levels
        square = (weighted * levels).sum(-1)
        fitted = storable((weighted * self.blocks).sum(-1) / np.where(square == 0, 1, square))
        better = self._error(fitted, self.zero) < self.error
        self.scale = np.where(better, fitted, self.scale)
        self.error = self._error(self.scale, self.zero)

    def _try(self, low: Floats, high: Floats) -> None:
        scale, zero = _parameters(self.blocks, self.grid, low, high)
        error = self._error(scale, zero)
        better = error < self.error
        self.error = np.where(better, error, self.error)
        self.scale = np.where(better, scale, self.scale)
        self.low, self.high = np.where(better, low, self.low), np.where(better, high, self.high)
        if zero is not None and self.zero is not None:
            self.zero = np.where(better, zero, self.zero)

    def _error(self, scale: Floats, zero: Integers | None) -> Floats:
        off = _levels(self.blocks, self.grid, scale, zero)
        off *= scale[..., None]
        off -= self.blocks
        off *= off
        off *= self.weights
        return off.sum(-1)


def _searched(weight: Floats, grid: Grid, importance: Floats) -> _Search:
    search = _Search(weight, grid, importance)
    search.draw_in()
    for _ in range(FITS):
        search.fit()
    return search


def _levels(blocks: Floats, grid: Grid, scale: Floats, zero: Integers | None) -> Floats:
    """Codes less their zero points: what the scale multiplies."""
    shift = np.float32(0) if zero is None else zero[..., None].astype(np.float32)
    levels = np.rint(blocks / scale[..., None])
    return levels.clip(grid.lowest - shift, grid.highest - shift)
