"""Grids beside the definition in plain NumPy, weight by weight, and beside exhaustive search."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllm_compiler.quantisation.grid import Codes, Grid, encode, mse_clipped, round_to_nearest

GRIDS = [
    Grid(bits=bits, block_size=block_size, symmetric=symmetric)
    for bits in (2, 4, 8)
    for block_size in (None, 8, 5)
    for symmetric in (True, False)
]


def weights(n: int, k: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return (generator.standard_t(4, (n, k)) * 0.05).astype(np.float32)


def nearest_by_hand(block: np.ndarray, grid: Grid) -> tuple[list[int], float, int]:
    """Codes, scale and zero point of one block, in double precision, as the docstring has them."""
    low, high = min(0.0, float(block.min())), max(0.0, float(block.max()))
    steps = 2**grid.bits - 1
    if grid.symmetric:
        scale = float(np.float16(max(high, -low) / (2 ** (grid.bits - 1) - 1)))
        return [round(float(w) / scale) for w in block], scale, 0
    scale = float(np.float16((high - low) / steps))
    zero = round(-low / scale)
    return [min(max(round(float(w) / scale) + zero, 0), steps) for w in block], scale, zero


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_nearest_codes_are_those_of_the_definition(grid: Grid) -> None:
    weight = weights(3, 18)
    found = round_to_nearest(weight, grid)
    block = grid.block_size or 18
    for row in range(3):
        for index, start in enumerate(range(0, 18, block)):
            codes, scale, zero = nearest_by_hand(weight[row, start : start + block], grid)
            assert found.codes[row, start : start + block].tolist() == codes
            assert found.scale[row, index] == scale
            assert (0 if found.zero is None else found.zero[row, index]) == zero


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_codes_mean_what_dequantize_says(grid: Grid) -> None:
    found = round_to_nearest(weights(3, 18), grid)
    block = grid.block_size or 18
    real = found.dequantised()
    for row, column in np.ndindex(3, 18):
        zero = 0 if found.zero is None else int(found.zero[row, column // block])
        level = int(found.codes[row, column]) - zero
        assert real[row, column] == np.float32(level) * found.scale[row, column // block]


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_the_error_is_at_most_half_a_step_where_nothing_is_clipped(grid: Grid) -> None:
    weight = weights(4, 40)
    found = round_to_nearest(weight, grid)
    step = np.repeat(found.scale, grid.block_size or 40, axis=1)[:, :40]
    # Half a step, and what rounding the scale to float16 and the zero point moves the ends by.
    assert (np.abs(found.dequantised() - weight) <= step * 1.07).all()
    assert np.mean(np.abs(found.dequantised() - weight) <= step * 0.501) > 0.95


def test_four_bit_codes_fit_the_types_of_the_dialect() -> None:
    for symmetric, kind in ((True, ml_dtypes.int4), (False, ml_dtypes.uint4)):
        found = round_to_nearest(weights(4, 40), Grid(bits=4, block_size=16, symmetric=symmetric))
        assert (found.codes.astype(kind).astype(int) == found.codes).all()


def test_bits_count_codes_scales_and_zero_points() -> None:
    """576 = 4.5 x 128: five blocks a row, the last of 64."""
    weight = weights(2, 576)
    asymmetric = Grid(bits=4, block_size=128, symmetric=False)
    assert round_to_nearest(weight, asymmetric).bits() == 2 * (576 * 4 + 5 * (16 + 4))
    assert round_to_nearest(weight, Grid(bits=8)).bits() == 2 * (576 * 8 + 16)


def test_zeros_stay_zeros() -> None:
    for grid in GRIDS:
        for quantised in (round_to_nearest, mse_clipped):
            found = quantised(np.zeros((2, 18), np.float32), grid)
            assert not found.dequantised().any()
            assert (found.scale == 1).all()


def test_scales_are_those_of_float16_and_finite() -> None:
    for factor in (1e-9, 1e9):
        found = round_to_nearest(weights(2, 16) * np.float32(factor), Grid(bits=4))
        assert np.isfinite(found.scale).all()
        assert (found.scale == found.scale.astype(np.float16)).all()


def error_of(found: Codes, weight: np.ndarray, importance: np.ndarray) -> np.ndarray:
    return (importance * (found.dequantised() - weight) ** 2).sum(1)


def least_by_search(row: np.ndarray, grid: Grid, importance: np.ndarray) -> float:
    """The least error over 2,000 scales and every zero point."""
    scales = np.linspace(0.02, 1.3, 2000) * np.abs(row).max() * 2 / (2**grid.bits - 1) * 1.2
    scales = scales.astype(np.float16).astype(np.float64)[:, None]
    zeros = [0] if grid.symmetric else range(2**grid.bits)
    least = np.inf
    for zero in zeros:
        levels = np.clip(np.rint(row / scales), grid.lowest - zero, grid.highest - zero)
        least = min(least, (importance * (levels * scales - row) ** 2).sum(1).min())
    return least


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [2, 3, 4])
def test_clipped_scales_come_near_the_best_of_all(bits: int, symmetric: bool) -> None:
    grid, weight = Grid(bits=bits, symmetric=symmetric), weights(40, 24)
    importance = np.random.default_rng(1).uniform(0.1, 4, 24).astype(np.float32)
    found = error_of(mse_clipped(weight, grid, importance), weight, importance)
    best = np.array([least_by_search(row.astype(np.float64), grid, importance) for row in weight])
    plain = error_of(round_to_nearest(weight, grid), weight, importance)
    assert found.sum() < best.sum() * 1.03
    assert found.sum() < plain.sum() * 0.9


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.sampled_from(GRIDS))
def test_clipping_never_loses_to_the_nearest(seed: int, grid: Grid) -> None:
    weight, ones = weights(3, 18, seed), np.ones(18, np.float32)
    found = error_of(mse_clipped(weight, grid), weight, ones).sum()
    assert found <= error_of(round_to_nearest(weight, grid), weight, ones).sum() * (1 + 1e-5)


def test_rows_at_once_do_not_change_what_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, grid = weights(9, 18), Grid(bits=4, block_size=8, symmetric=False)
    whole = mse_clipped(weight, grid)
    monkeypatch.setattr("mllm_compiler.quantisation.grid.ELEMENTS_AT_ONCE", 40)
    pieces = mse_clipped(weight, grid)
    assert (whole.codes == pieces.codes).all()
    assert (whole.scale == pieces.scale).all()


def test_given_scales_are_kept() -> None:
    weight = weights(2, 8)
    scale = np.full((2, 1), 0.25, np.float32)
    assert (encode(weight, Grid(bits=8), scale, None).codes == np.rint(weight / 0.25)).all()


@pytest.mark.parametrize(("bits", "block_size"), [(1, None), (9, None), (4, 0)])
def test_a_grid_that_is_none_is_refused(bits: int, block_size: int | None) -> None:
    with pytest.raises(ValueError, match="2 to 8 bits"):
        Grid(bits=bits, block_size=block_size)
