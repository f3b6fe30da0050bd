"""Rotations beside their defining property, and beside Sylvester's matrices written out."""

from __future__ import annotations

import numpy as np
import pytest

from mllm_compiler.quantisation.hadamard import (
    fold_into_inputs,
    fold_into_outputs,
    hadamard,
    random_orthogonal,
    rotation,
)

# Orders of the widths of real models: 384 DINOv2-S, 512 Whisper-base, 576 and 1536 SmolLM2.
ORDERS = [1, 2, 4, 8, 12, 20, 24, 28, 36, 40, 64, 144, 384, 512, 576, 768, 896, 1152, 1536]


@pytest.mark.parametrize("size", ORDERS)
def test_entries_are_signs_and_rows_are_orthogonal(size: int) -> None:
    found = hadamard(size)
    assert found is not None
    assert (np.abs(found) == 1).all()
    assert (found @ found.T == size * np.eye(size)).all()


def test_powers_of_two_up_to_four_are_those_of_sylvester_but_for_signs_and_order() -> None:
    """Hadamard matrices of order 4 are all equivalent: each pair of rows agrees in two places."""
    found = hadamard(4)
    assert found is not None
    agreements = [(found[i] == found[j]).sum() for i in range(4) for j in range(i)]
    assert agreements == [2] * 6


@pytest.mark.parametrize("size", [3, 6, 7, 10, 50])
def test_there_is_none_of_an_order_that_four_does_not_divide(size: int) -> None:
    assert hadamard(size) is None
    turn = rotation(size, 0)
    np.testing.assert_allclose(turn @ turn.T, np.eye(size), atol=1e-12)


@pytest.mark.parametrize("make", [rotation, random_orthogonal])
def test_rotations_are_orthogonal_and_of_their_seed(make: object) -> None:
    assert callable(make)
    turn = make(576, 5)
    np.testing.assert_allclose(turn @ turn.T, np.eye(576), atol=1e-12)
    assert (turn == make(576, 5)).all()
    assert np.abs(turn - make(576, 6)).max() > 0.01


def test_an_outlier_is_spread_over_all_channels() -> None:
    x = np.zeros(576)
    x[17] = 100
    np.testing.assert_allclose(np.abs(x @ rotation(576, 0)), 100 / 24)


def test_folding_keeps_the_function_of_two_layers() -> None:
    generator = np.random.default_rng(0)
    first, second = generator.normal(size=(48, 20)), generator.normal(size=(7, 48))
    x = generator.normal(size=(5, 20))
    turn = rotation(48, 1)
    y = x @ fold_into_outputs(first, turn).T
    assert np.abs(y - x @ first.T).max() > 1
    np.testing.assert_allclose(y @ fold_into_inputs(second, turn).T, x @ first.T @ second.T)
