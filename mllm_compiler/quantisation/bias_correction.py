"""Bias correction: a layer's bias takes back the mean error of its output (Nagel et al. 2019)."""

from __future__ import annotations

import numpy as np

from mllm_compiler.quantisation.grid import Floats


def correction(
    weight: Floats, coded: Floats, mean: Floats, quantised_mean: Floats | None = None
) -> Floats:
    """What to add to a layer's bias, [N]: E[x] w^T - E[x'] q^T.

    Args:
        weight: [N, K], as it was.
        coded: [N, K], what its codes mean.
        mean: [K], the mean of the inputs x of the float model over the calibration rows.
        quantised_mean: [K], that of the inputs x' of the quantised model; x where None.
    """
    seen = mean if quantised_mean is None else quantised_mean
    wanted = weight.astype(np.float64) @ mean
    return (wanted - coded.astype(np.float64) @ seen).astype(np.float32)
