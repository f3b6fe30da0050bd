"""Fixed-point arithmetic as LiteRT's kernels do it: multipliers of 31 bits, tables of 512 pieces.

Measured against LiteRT 2.3.0; its sources call these `MultiplyByQuantizedMultiplier` (Jacob et al.
2018, section 2.2) and `LUTLookup`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

PIECES: Final = 512
"""Of a table for codes of 16 bits."""

HALF: Final = PIECES // 2
WIDTH: Final = 7
"""Bits of a code that lie within a piece."""


def multiplier_of(real: float) -> tuple[int, int]:
    """A number as a whole one times 2^(shift - 31)."""
    part, shift = math.frexp(real)
    whole = math.floor(part * (1 << 31) + 0.5)
    if whole == 1 << 31:
        whole, shift = whole // 2, shift + 1
    return (0, 0) if shift < -31 else (whole, shift)


def multiplied(x: Array, real: float) -> Array:
    """X by a number, rounded twice: to 32 bits of the product, then to whole numbers, as 8 bits."""
    return scaled(x, *multiplier_of(real))


def scaled(x: Array, whole: int, shift: int) -> Array:
    """X by a multiplier, rounded twice; halves away from zero."""
    left, right = max(shift, 0), max(-shift, 0)
    product = (x.astype(np.int64) << left) * whole
    doubled = product + np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    high = np.where(doubled >= 0, doubled >> 31, -((-doubled) >> 31))
    mask = (1 << right) - 1
    return (high >> right) + ((high & mask) > (mask >> 1) + (high < 0))


def multiplied_once(x: Array, real: Array | float) -> Array:
    """X by numbers, rounded once; halves up: products of 16 bits with a weight."""
    whole, shift = _multipliers(real)
    # In two parts, as the product may have more than 64 bits.
    low = ((x & 0xFFFF) * whole + (np.int64(1) << (30 - shift))) >> 16
    return ((x >> 16) * whole + low) >> (15 - shift)


def multiplied_short(x: Array, real: Array | float) -> Array:
    """X by numbers of 15 bits, rounded once; halves up: sums of 64 bits."""
    whole, shift = _multipliers(real)
    short = np.where(whole < 0x7FFF0000, (whole + (1 << 15)) >> 16, 0x7FFF)
    return (x * short + (np.int64(1) << (14 - shift))) >> (15 - shift)


def _multipliers(real: Array | float) -> tuple[Array, Array]:
    pairs = [multiplier_of(float(r)) for r in np.asarray(real).reshape(-1)]
    whole, shift = np.array(pairs, np.int64).reshape(*np.shape(real), 2).swapaxes(0, -1)
    return whole, shift


def table16(
    function: Callable[[Array], Array],
    x: tuple[float, int],
    y: tuple[float, int],
    kind: type[np.floating[Any]] = np.float32,
) -> Array:
    """The 513 codes between which a function of codes of 16 bits is a line.

    Args:
        function: Of reals.
        x: Scale and zero point of what it reads.
        y: Scale and zero point of what it gives.
        kind: The precision that the table is made in.
    """
    low, high = (kind(x[0]) * kind(end - x[1]) for end in (-32768, 32767))
    least, most = (kind(y[0]) * kind(end - y[1]) for end in (-32768, 32767))
    step, to_code = kind((high - low) / kind(PIECES)), kind(kind(65536) / (most - least))
    at = np.arange(PIECES).astype(kind)

    def codes(points: Array) -> Array:
        return function(points).astype(kind) * to_code

    here, behind = _away(codes(low + at * step)), codes(low + (at + 1) * step)
    middle = _away(codes(low + at * step + kind(step / kind(2))))
    bent = _away((behind + here) / kind(2)) - middle
    pieces = np.append(here - _away(bent / kind(2)), _away(codes(np.array([high]))))
    return np.clip(pieces, -32768, 32767).astype(np.int64)


def looked_up(codes: Array, table: Array) -> Array:
    """What a table of 513 codes gives for codes of 16 bits."""
    wide = codes.astype(np.int64)
    at, within = HALF + (wide >> WIDTH), wide & ((1 << WIDTH) - 1)
    below = table[at]
    return below + (((table[at + 1] - below) * within + (1 << (WIDTH - 1))) >> WIDTH)


def _away(x: Array) -> Array:
    """The nearest whole number, halves away from zero."""
    return np.copysign(np.floor(np.abs(x) + x.dtype.type(0.5)), x)
