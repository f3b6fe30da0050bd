"""SmoothQuant's divisors: the function stays, strength 1/2 makes both sides alike (eq. 4)."""

from __future__ import annotations

import numpy as np
import pytest

from mllm_compiler.quantisation.grid import Grid, round_to_nearest
from mllm_compiler.quantisation.smooth import smoothing


def layer() -> tuple[np.ndarray, np.ndarray]:
    """Inputs with two outlying channels, and a matrix."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(300, 32)).astype(np.float32)
    x[:, [3, 20]] *= 60
    return x, generator.normal(size=(16, 32)).astype(np.float32)


def test_half_strength_gives_each_channel_one_peak_on_both_sides() -> None:
    x, weight = layer()
    s = smoothing(np.abs(x).max(0), [weight[:9], weight[9:]])
    np.testing.assert_allclose(np.abs(x / s).max(0), np.abs(weight * s).max(0), rtol=1e-5)
    np.testing.assert_allclose((x / s) @ (weight * s).T, x @ weight.T, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("strength", "side"), [(1.0, 0), (0.0, 1)])
def test_the_ends_of_strength_level_one_side(strength: float, side: int) -> None:
    x, weight = layer()
    s = smoothing(np.abs(x).max(0), [weight], strength)
    peaks = (np.abs(x / s).max(0), np.abs(weight * s).max(0))[side]
    np.testing.assert_allclose(peaks, 1, rtol=1e-5)


def test_eight_bits_a_token_lose_less_after_smoothing() -> None:
    """Codes of inputs and of weights, one scale a token and one a row, multiplied out."""
    x, weight = layer()
    s = smoothing(np.abs(x).max(0), [weight])

    def error(inputs: np.ndarray, matrix: np.ndarray) -> float:
        grid = Grid(bits=8)
        product = (
            round_to_nearest(inputs, grid).dequantised()
            @ round_to_nearest(matrix, grid).dequantised().T
        )
        return float(np.abs(product - x @ weight.T).mean())

    assert error(x / s, weight * s) < error(x, weight) / 4


def test_silent_channels_are_left_alone() -> None:
    x, weight = layer()
    x[:, 5], weight[:, 7] = 0, 0
    s = smoothing(np.abs(x).max(0), [weight])
    assert s[5] == s[7] == 1
    assert np.isfinite(s).all()
