"""How alike the features of two encoders are: their angle, and which picture is the nearest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]


def cosine(left: NDArray[np.generic], right: NDArray[np.generic]) -> float:
    """The cosine of the angle between two arrays of one size; NaN where it is not defined.

    Two arrays of zeros are the same, so their cosine is 1.
    """
    a, b = left.astype(np.float64).ravel(), right.astype(np.float64).ravel()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    if scale == 0.0:
        return float(np.array_equal(a, b))
    return float(a @ b) / scale


def nearest(features: Rows) -> NDArray[np.intp]:
    """For each row the other row of the largest cosine: [samples, size] -> [samples]."""
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    unit = features / np.maximum(lengths, np.finfo(np.float64).tiny)
    alike = unit @ unit.T
    np.fill_diagonal(alike, -np.inf)
    return alike.argmax(axis=1)


def neighbour_agreement(left: Rows, right: Rows) -> float:
    """In percent, for how many samples both feature sets have the same nearest neighbour."""
    return 100 * float((nearest(left) == nearest(right)).mean())
