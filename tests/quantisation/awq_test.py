"""AWQ's search beside every power, measured on the calibration rows themselves."""

from __future__ import annotations

import numpy as np

from mllm_compiler.quantisation.awq import STEPS, awq_scales
from mllm_compiler.quantisation.grid import Grid, round_to_nearest

GRID = Grid(bits=3, block_size=32, symmetric=False)


def layer() -> tuple[np.ndarray, list[np.ndarray]]:
    """Inputs whose channels differ in size by orders of magnitude, and two matrices."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(300, 64)) * np.exp(1.5 * generator.normal(size=64))
    return x.astype(np.float32), [
        generator.normal(size=(n, 64)).astype(np.float32) for n in (16, 24)
    ]


def output_error(x: np.ndarray, weights: list[np.ndarray], s: np.ndarray) -> float:
    """The squared error of both outputs over the rows, in double precision."""
    total = 0.0
    for weight in weights:
        scaled = round_to_nearest(weight * s, GRID).dequantised().astype(np.float64)
        difference = (x / s).astype(np.float64) @ scaled.T - x.astype(np.float64) @ weight.T
        total += float((difference**2).sum())
    return total


def test_the_power_found_is_the_best_of_those_tried() -> None:
    x, weights = layer()
    magnitudes = np.abs(x).mean(0)
    moments = x.T.astype(np.float64) @ x
    found = output_error(x, weights, awq_scales(weights, magnitudes, moments, GRID))
    tried = []
    for step in range(STEPS):
        s = magnitudes ** (step / STEPS)
        tried.append(output_error(x, weights, s / np.sqrt(s.max() * s.min())))
    assert found <= min(tried) * 1.001
    assert found < output_error(x, weights, np.ones(64)) * 0.8


def test_even_channels_are_not_scaled() -> None:
    _, weights = layer()
    ones = np.ones(64, np.float32)
    assert (awq_scales(weights, ones, np.eye(64), GRID) == 1).all()


def test_silent_channels_are_left_alone() -> None:
    x, weights = layer()
    x[:, 9] = 0
    s = awq_scales(weights, np.abs(x).mean(0), x.T.astype(np.float64) @ x, GRID)
    assert s[9] == 1
    assert (np.isfinite(s) & (s > 0)).all()
