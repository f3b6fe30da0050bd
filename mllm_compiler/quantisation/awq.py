"""AWQ: the channels that activations make important are scaled up before weights are rounded.

Column j of the weights is multiplied by s_j and channel j of the input divided, which folds into
what makes the input. A larger s gives a column finer codes, at the cost of its block. s is a power
of the channel's mean magnitude; the power is searched for (Lin et al. 2023).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mllm_compiler.quantisation.gptq import Hessian
from mllm_compiler.quantisation.grid import Floats, Grid, round_to_nearest

STEPS = 20


def awq_scales(
    weights: Sequence[Floats], magnitudes: Floats, hessian: Hessian, grid: Grid
) -> Floats:
    """The factors of the columns, [K], under which rounding to the nearest harms the outputs least.

    Args:
        weights: [N, K] each, all that read the input.
        magnitudes: [K], the mean magnitude of each channel over the calibration rows.
        hessian: [K, K], the second moments of the input.
        grid: the format that the weights will have.
    """
    candidates = [_factors(magnitudes, step / STEPS) for step in range(STEPS)]
    losses = [sum(_loss(w, s, hessian, grid) for w in weights) for s in candidates]
    return candidates[int(np.argmin(losses))]


def _factors(magnitudes: Floats, power: float) -> Floats:
    """Magnitudes to a power, their geometric middle at 1; 1 for channels that are silent."""
    seen = magnitudes > 0
    factors = np.where(seen, magnitudes, 1).astype(np.float64) ** power
    if seen.any():
        factors /= np.sqrt(factors[seen].max() * factors[seen].min())
    return np.where(seen, factors, 1).astype(np.float32)


def _loss(weight: Floats, factors: Floats, hessian: Hessian, grid: Grid) -> float:
    rounded = round_to_nearest(weight * factors, grid).dequantised() / factors
    error = (rounded - weight).astype(np.float64)
    return float(np.sum(error @ hessian * error))
