"""GPTQ: codes that minimise the error of a layer's output, not of its weights.

Of a linear layer y = x w^T over calibration rows x, with H = x^T x, the squared error of the output
of codes q is the sum over rows of (q - w) H (q - w)^T. GPTQ (Frantar et al. 2022) rounds column by
column and lets the columns that are still real make up for each error, through the Cholesky
factor of the inverse of H. Scales are fixed before (static groups), so that columns may be taken
in the order of their importance whatever block they are in. `descend` then goes on from any codes
by coordinate descent on the same loss, and `refit` fits the scales to the codes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mllm_compiler.quantisation.grid import (
    Codes,
    Floats,
    Grid,
    in_blocks,
    mse_clipped,
    spread,
    storable,
)

Hessian = NDArray[np.float64]
COLUMNS = 128
"""Columns between two updates of all later ones."""


def gptq(
    weight: Floats, hessian: Hessian, grid: Grid, *, damping: float = 0.01, sweeps: int = 0
) -> Codes:
    """Codes of a matrix [N, K] for inputs whose second moments are `hessian` [K, K].

    Scales are those of `mse_clipped`, each column counting as its second moment; columns are taken
    from the most important one on. Then come `sweeps` rounds of `refit` and `descend`.

    Args:
        weight: [N, K].
        hessian: x^T x over calibration rows x [rows, K], or any multiple of it.
        grid: the format.
        damping: what is added to the diagonal, as a part of its mean.
        sweeps: rounds of coordinate descent after.
    """
    moments = damped(hessian, damping)
    importance = np.diag(moments).astype(np.float32)
    start = mse_clipped(weight, grid, importance)
    found = _compensated(weight, moments, start)
    for _ in range(sweeps):
        found = descend(weight, moments, refit(weight, moments, found))
    return found


def damped(hessian: Hessian, damping: float) -> Hessian:
    """Second moments with a part of their mean added to the diagonal; inputs never seen count 1."""
    mean = float(np.mean(np.diag(hessian)))
    extra = damping * mean if mean > 0 else 1.0
    return hessian + extra * np.eye(len(hessian))


def loss(weight: Floats, hessian: Hessian, codes: Codes) -> float:
    """The squared error of the layer's output over the calibration rows."""
    return float(_row_losses(weight, hessian, codes).sum())


def _compensated(weight: Floats, moments: Hessian, start: Codes) -> Codes:
    """Codes under the scales of `start`, later columns making up for the errors of earlier ones."""
    k = weight.shape[1]
    order = np.argsort(-np.diag(moments), kind="stable")
    factor = _inverse_factor(moments[np.ix_(order, order)]).astype(np.float32)
    # Columns are rows here, so that each lies in one piece.
    scale, shift = (part[order] for part in _by_column(start, k))
    rest = np.ascontiguousarray(weight.T[order], np.float32)
    low, high = start.grid.lowest, start.grid.highest
    levels = np.empty_like(rest)
    for first in range(0, k, COLUMNS):
        last = min(first + COLUMNS, k)
        errors = np.empty((last - first, len(weight)), np.float32)
        for j in range(first, last):
            level = np.rint(rest[j] / scale[j]).clip(low - shift[j], high - shift[j])
            error = (rest[j] - level * scale[j]) / factor[j, j]
            rest[j + 1 : last] -= np.outer(factor[j, j + 1 : last], error)
            levels[j], errors[j - first] = level, error
        rest[last:] -= factor[first:last, last:].T @ errors
    codes = np.empty_like(levels)
    codes[order] = levels + shift
    return replace(start, codes=codes.T.astype(start.codes.dtype, order="C"))


def _inverse_factor(moments: Hessian) -> Hessian:
    """The upper Cholesky factor U of the inverse, U^T U = moments^-1."""
    # L L^T = the moments taken backwards; its inverse, taken backwards again, is upper triangular.
    lower = np.linalg.cholesky(moments[::-1, ::-1])
    return np.ascontiguousarray(np.linalg.inv(lower)[::-1, ::-1], np.float64)


def _by_column(codes: Codes, k: int) -> tuple[Floats, Floats]:
    """Scale and zero point at each weight, [K, N]."""
    block = codes.grid.block(k)
    scale = np.ascontiguousarray(spread(codes.scale, block, k).T)
    if codes.zero is None:
        return scale, np.zeros_like(scale)
    return scale, np.ascontiguousarray(spread(codes.zero, block, k).T, np.float32)


def descend(weight: Floats, hessian: Hessian, codes: Codes) -> Codes:
    """One round of coordinate descent on `loss`: each code in turn becomes the best one.

    All others stay; so the loss never grows, but for rounding.
    """
    k = weight.shape[1]
    scale, shift = _by_column(codes, k)
    levels = codes.codes.T.astype(np.float32, order="C") - shift
    moments = hessian.astype(np.float32)
    slope = moments @ (levels * scale - weight.T)
    low, high = codes.grid.lowest, codes.grid.highest
    for first in range(0, k, COLUMNS):
        last = min(first + COLUMNS, k)
        moved = np.empty((last - first, len(weight)), np.float32)
        for j in range(first, last):
            wanted = levels[j] - slope[j] / (moments[j, j] * scale[j])
            level = np.rint(wanted).clip(low - shift[j], high - shift[j])
            moved[j - first] = (level - levels[j]) * scale[j]
            slope[j:last] += np.outer(moments[j, j:last], moved[j - first])
            levels[j] = level
        slope[last:] += moments[last:, first:last] @ moved
    return replace(codes, codes=(levels + shift).T.astype(codes.codes.dtype, order="C"))


def refit(weight: Floats, hessian: Hessian, codes: Codes) -> Codes:
    """The scales of each row that fit its codes best under `loss`: least squares in G unknowns.

    A row whose new scales are no better, once they are stored as float16, keeps its own.
    """
    k = weight.shape[1]
    block, count = codes.grid.block(k), codes.grid.blocks(k)
    _, shift = _by_column(codes, k)
    levels = codes.codes.astype(np.float64) - shift.T
    normal = np.empty((len(weight), count, count))
    for g in range(count):
        columns = slice(g * block, (g + 1) * block)
        seen = (levels[:, columns] @ hessian[columns]) * levels
        normal[:, g] = in_blocks(seen, codes.grid).sum(-1)
    right: Hessian = in_blocks(weight.astype(np.float64) @ hessian * levels, codes.grid).sum(-1)
    empty = np.diagonal(normal, axis1=1, axis2=2) == 0
    normal[:, range(count), range(count)] += empty
    scale = np.linalg.solve(normal, right[:, :, None])[:, :, 0]
    fitted = replace(codes, scale=np.where(scale > 0, storable(scale), codes.scale))
    better = _row_losses(weight, hessian, fitted) < _row_losses(weight, hessian, codes)
    return replace(codes, scale=np.where(better[:, None], fitted.scale, codes.scale))


def _row_losses(weight: Floats, hessian: Hessian, codes: Codes) -> NDArray[np.float64]:
    error = (codes.dequantised() - weight).astype(np.float64)
    return np.sum(error @ hessian * error, 1)
