"""How far one array is from another."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]

LEAST = float(np.finfo(np.float32).tiny)
"""Magnitudes below it are denormal: what is left of them has few digits, so none is asked for."""


def relative_error(value: Array, expected: Array) -> float:
    """The largest difference over the largest expected magnitude.

    Infinite where shapes or dtypes differ, or where one is infinite or NaN and the other is not
    the same.
    """
    if value.shape != expected.shape or value.dtype != expected.dtype:
        return float("inf")
    if value.size == 0:
        return 0.0
    if value.dtype.kind not in "fiub" and not _narrow(value):
        return 0.0 if np.array_equal(value, expected) else float("inf")
    left, right = value.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(right)
    if not np.array_equal(left[~finite], right[~finite], equal_nan=True):
        return float("inf")
    if not np.isfinite(left[finite]).all():
        return float("inf")
    difference = np.abs(left[finite] - right[finite]).max(initial=0)
    scale = np.abs(right[finite]).max(initial=0)
    return float(difference / max(scale, LEAST)) if scale > 0 else float(difference)


def exact_error(value: Array, expected: Array) -> float:
    """The relative error; where it is zero but a bit differs, the least number above zero."""
    error = relative_error(value, expected)
    if error > 0 or same_bits(value, expected):
        return error
    return float(np.finfo(np.float64).smallest_subnormal)


def same_bits(value: Array, expected: Array) -> bool:
    """Whether two arrays of one shape and dtype hold the same bits; any NaN is like another."""
    if value.dtype.kind == "f" or _narrow(value):
        nan = np.isnan(value.astype(np.float64))
        same = np.signbit(value.astype(np.float64)) == np.signbit(expected.astype(np.float64))
        return bool(np.array_equal(value, expected, equal_nan=True) and (same | nan).all())
    return bool(np.array_equal(value, expected))


def _narrow(value: Array) -> bool:
    """Whether the dtype is one that `ml_dtypes` adds to NumPy."""
    return value.dtype.type.__module__.startswith(ml_dtypes.__name__)
