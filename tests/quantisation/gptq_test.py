"""GPTQ beside the greedy rounding that it stands for, solved step by step, and beside search."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

from mllm_compiler.quantisation.gptq import damped, descend, gptq, loss, refit
from mllm_compiler.quantisation.grid import Codes, Grid, mse_clipped, round_to_nearest

GRIDS = [
    Grid(bits=bits, block_size=block_size, symmetric=symmetric)
    for bits in (3, 4)
    for block_size in (None, 16, 10)
    for symmetric in (True, False)
]


def layer(n: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A matrix, and the second moments of correlated inputs with a few strong channels."""
    generator = np.random.default_rng(seed)
    weight = (generator.standard_t(5, (n, k)) * 0.1).astype(np.float32)
    mixing = generator.normal(size=(k, k)) / np.sqrt(k) + np.eye(k)
    x = generator.normal(size=(400, k)) @ mixing * np.exp(generator.normal(size=k))
    return weight, x.T @ x


def rounded_one_by_one(weight: np.ndarray, moments: np.ndarray, start: Codes) -> np.ndarray:
    """Levels of GPTQ without its Cholesky factor: after each rounding, the best real rest.

    Frantar et al. derive the update as the minimum of the loss over the columns that are left;
    here that minimum is found by solving for it.
    """
    n, k = weight.shape
    block = start.grid.block(k)
    order = np.argsort(-np.diag(moments), kind="stable")
    levels = np.zeros((n, k))
    for row in range(n):
        done: list[int] = []
        target = weight[row].astype(np.float64).copy()
        for j in order:
            scale = float(start.scale[row, j // block])
            zero = 0 if start.zero is None else int(start.zero[row, j // block])
            level = np.clip(
                np.rint(target[j] / scale), start.grid.lowest - zero, start.grid.highest - zero
            )
            levels[row, j] = level + zero
            target[j] = level * scale
            done.append(j)
            left = np.array([i for i in range(k) if i not in done], int)
            if not len(left):
                break
            fixed = target[done] - weight[row, done]
            best = np.linalg.solve(moments[np.ix_(left, left)], moments[np.ix_(left, done)] @ fixed)
            target[left] = weight[row, left] - best
    return levels


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_codes_are_those_of_rounding_one_by_one(grid: Grid) -> None:
    weight, hessian = layer(4, 36)
    moments = damped(hessian, 0.01)
    found = gptq(weight, hessian, grid)
    start = mse_clipped(weight, grid, np.diag(moments).astype(np.float32))
    assert (found.scale == start.scale).all()
    expected = rounded_one_by_one(weight, moments, start)
    # Ties and single precision may turn a code, and then what follows it in its row.
    assert np.mean(found.codes == expected) > 0.97


@pytest.mark.parametrize("columns", [1, 7, 128])
def test_columns_at_once_do_not_change_the_loss(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight, hessian = layer(16, 60)
    grid = Grid(bits=4, block_size=16, symmetric=False)
    whole = loss(weight, hessian, gptq(weight, hessian, grid, sweeps=1))
    monkeypatch.setattr("mllm_compiler.quantisation.gptq.COLUMNS", columns)
    pieces = loss(weight, hessian, gptq(weight, hessian, grid, sweeps=1))
    assert pieces == pytest.approx(whole, rel=0.01)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_every_step_lowers_the_loss(grid: Grid) -> None:
    weight, hessian = layer(24, 80)
    moments = damped(hessian, 0.01)
    nearest = loss(weight, moments, round_to_nearest(weight, grid))
    clipped = mse_clipped(weight, grid, np.diag(moments).astype(np.float32))
    compensated = gptq(weight, hessian, grid)
    fitted = refit(weight, moments, compensated)
    descended = descend(weight, moments, fitted)
    swept = gptq(weight, hessian, grid, sweeps=3)
    steps = [nearest, loss(weight, moments, clipped)]
    steps += [loss(weight, moments, codes) for codes in (compensated, fitted, descended, swept)]
    assert steps[2] < 0.75 * steps[0]
    assert all(later <= earlier * (1 + 1e-5) for earlier, later in pairwise(steps))
    assert steps[4] < steps[2]


def test_damping_keeps_few_rows_from_being_learnt_by_heart() -> None:
    """Codes for 40 rows of 80 inputs, held to the moments of 4,000 others of the same kind."""
    random = np.random.default_rng(6)
    weight = random.standard_normal((24, 80)).astype(np.float32)
    mix = random.standard_normal((80, 80)) * np.geomspace(1, 0.05, 80)
    few, many = (random.standard_normal((rows, 80)) @ mix.T for rows in (40, 4000))
    grid, truth = Grid(bits=4, block_size=16, symmetric=False), many.T @ many
    seen = few.T @ few
    losses = [loss(weight, truth, gptq(weight, seen, grid, damping=d)) for d in (1e-4, 0.01, 0.3)]
    assert losses[2] < 0.8 * losses[1] < 0.8 * losses[0]
    codes = [gptq(weight, truth, grid, damping=d) for d in (0.01, 0.3)]
    assert loss(weight, truth, codes[0]) < loss(weight, truth, codes[1])


def test_descent_from_gptq_is_near_the_best_codes_of_all() -> None:
    """Six columns of two bits: 4,096 code words a row, tried one and all."""
    weight, hessian = layer(20, 6, seed=4)
    grid = Grid(bits=2)
    moments = damped(hessian, 0.01)
    found = gptq(weight, hessian, grid)
    words = np.array(list(product(range(-2, 2), repeat=6)), np.float64)
    errors = words[None] * found.scale.astype(np.float64)[:, None] - weight[:, None]
    best = np.einsum("nwk,kl,nwl->nw", errors, moments, errors).min(1).sum()
    descended = loss(weight, moments, descend(weight, moments, found))
    assert best - 1e-6 <= descended
    assert descended < best * 1.25


def test_after_descent_no_single_code_is_better() -> None:
    weight, hessian = layer(3, 12)
    moments = damped(hessian, 0.01)
    found = gptq(weight, hessian, Grid(bits=3, block_size=8, symmetric=False))
    for _ in range(20):
        found = descend(weight, moments, found)
    least = loss(weight, moments, found)
    for row, column, code in product(range(3), range(12), range(8)):
        other = found.codes.copy()
        other[row, column] = code
        assert loss(weight, moments, replace(found, codes=other)) >= least * (1 - 1e-5)


def test_refitted_scales_are_those_of_least_squares() -> None:
    """Over the rows x themselves: x w^T against the part that each block adds to it."""
    generator = np.random.default_rng(2)
    weight = generator.normal(size=(3, 20)).astype(np.float32)
    x = generator.normal(size=(200, 20))
    grid = Grid(bits=4, block_size=8, symmetric=False)
    codes = round_to_nearest(weight, grid)
    found = refit(weight, x.T @ x, codes)
    assert codes.zero is not None
    for row in range(3):
        levels = codes.codes[row].astype(float) - np.repeat(codes.zero[row], 8)[:20]
        parts = np.stack([x[:, s : s + 8] @ levels[s : s + 8] for s in (0, 8, 16)], 1)
        expected = np.linalg.lstsq(parts, x @ weight[row])[0]
        np.testing.assert_allclose(found.scale[row], expected, rtol=6e-4)


def test_inputs_that_were_never_seen_are_rounded_to_the_nearest() -> None:
    weight, _ = layer(4, 16)
    grid = Grid(bits=4, block_size=8)
    found = gptq(weight, np.zeros((16, 16)), grid)
    assert (found.codes == mse_clipped(weight, grid).codes).all()
