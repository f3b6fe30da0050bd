"""SmoothQuant: what is hard in activations moves into weights, which take it better.

Channel j of a layer's input is divided by s_j and column j of the weights that read it multiplied;
the function stays. The division folds into what makes the input, such as the weight of a norm
(Xiao et al. 2023).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mllm_compiler.quantisation.grid import Floats


def smoothing(peaks: Floats, weights: Sequence[Floats], strength: float = 0.5) -> Floats:
    """The divisors of the channels of an input, [K]: s = max|x|^a / max|w|^(1 - a).

    Args:
        peaks: [K], the largest magnitude of each channel over the calibration rows.
        weights: [N, K] each, all that read the input.
        strength: a, from 0 (weights become even) to 1 (activations do).

    Channels that are never other than 0, in the input or in all weights, keep the divisor 1.
    """
    columns = np.max([np.abs(weight).max(0) for weight in weights], 0)
    seen = (peaks > 0) & (columns > 0)
    top, column = np.where(seen, peaks, 1), np.where(seen, columns, 1)
    return (top**strength / column ** (1 - strength)).astype(np.float32)
