"""Cosines against SciPy, neighbours against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cosine as distance
from sklearn.neighbors import NearestNeighbors

from mllm_compiler.quality.features import cosine, nearest, neighbour_agreement


def test_the_cosine_is_that_of_scipy() -> None:
    random = np.random.default_rng(1)
    left, right = random.standard_normal((2, 3, 4)).astype(np.float32)
    assert cosine(left, right) == pytest.approx(1 - distance(left.ravel(), right.ravel()))
    assert cosine(left, left * 3) == pytest.approx(1)


def test_zeros_are_like_zeros_alone() -> None:
    zeros = np.zeros(3, np.float32)
    assert cosine(zeros, zeros) == 1.0
    assert cosine(zeros, zeros + 1) == 0.0
    assert np.isnan(cosine(zeros + np.nan, zeros + 1))


def test_neighbours_are_those_of_scikit_learn() -> None:
    random = np.random.default_rng(2)
    left = random.standard_normal((30, 6))
    right = left + 0.5 * random.standard_normal((30, 6))
    found = [
        NearestNeighbors(n_neighbors=2, metric="cosine").fit(x).kneighbors(x)[1][:, 1]
        for x in (left, right)
    ]
    np.testing.assert_array_equal(nearest(left), found[0])
    expected = 100 * (found[0] == found[1]).mean()
    assert neighbour_agreement(left, right) == pytest.approx(expected)
    assert 0 < expected < 100
