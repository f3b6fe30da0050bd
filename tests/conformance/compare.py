"""Compares an answer with the expected one: every element type, sequences, optionals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

STEPS = {
    np.dtype(np.float16): 2.0**-9,
    np.dtype(ml_dtypes.bfloat16): 2.0**-6,
}
"""Twice the distance between neighbours around 1: the suite rounds what lies between two operators
of an expanded one to the narrow type too, which lifted ones do not."""


def difference(expected: Any, got: Any, *, rtol: float, atol: float) -> str | None:
    """In what an answer differs from the expected one, in one line; None where it does not."""
    if expected is None or got is None:
        return None if expected is got else f"{_kind(got)} instead of {_kind(expected)}"
    if isinstance(expected, list | tuple):
        return _sequence(expected, got, rtol, atol)
    if isinstance(got, list | tuple):
        return f"a sequence instead of {_kind(expected)}"
    return _tensor(np.asarray(expected), np.asarray(got), rtol, atol)


def _sequence(expected: Any, got: Any, rtol: float, atol: float) -> str | None:
    if not isinstance(got, list | tuple):
        return f"{_kind(got)} instead of a sequence"
    if len(expected) != len(got):
        return f"a sequence of {len(got)} instead of {len(expected)}"
    for at, (want, have) in enumerate(zip(expected, got, strict=True)):
        wrong = difference(want, have, rtol=rtol, atol=atol)
        if wrong is not None:
            return f"element {at}: {wrong}"
    return None


def _tensor(expected: Array, got: Array, rtol: float, atol: float) -> str | None:
    if expected.shape != got.shape:
        return f"shape {got.shape} instead of {expected.shape}"
    if expected.dtype.kind in "OUS" or got.dtype.kind in "OUS":
        return _text(expected, got)
    if expected.dtype != got.dtype:
        return f"{got.dtype} instead of {expected.dtype}"
    if not expected.size:
        return None
    rtol = max(rtol, STEPS.get(expected.dtype, 0.0))
    want, have = _wide(expected), _wide(got)
    close = np.isclose(have, want, rtol=rtol, atol=atol, equal_nan=True)
    if expected.dtype.kind in "iub" or ml_dtypes_integer(expected.dtype):
        close = expected == got
    if close.all():
        return None
    at = tuple(int(i) for i in np.argwhere(~np.atleast_1d(close))[0])
    first = (np.atleast_1d(have)[at], np.atleast_1d(want)[at])
    return f"{int((~close).sum())} of {close.size} differ; at {at} {first[0]} instead of {first[1]}"


def ml_dtypes_integer(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is one of the integers of 2 or 4 bits."""
    return dtype.name in ("int4", "uint4", "int2", "uint2")


def _wide(array: Array) -> Array:
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    return array.astype(np.float64)


def _text(expected: Array, got: Array) -> str | None:
    want, have = ([_word(x) for x in a.reshape(-1).tolist()] for a in (expected, got))
    for at, (a, b) in enumerate(zip(want, have, strict=True)):
        if a != b:
            return f"at {at} {b!r} instead of {a!r}"
    return None


def _word(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    return "a sequence" if isinstance(value, list | tuple) else "a tensor"
