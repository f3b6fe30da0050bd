"""Biases that take back the mean error of quantised products: chosen on samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mllm_compiler.dialects.mllm import LinearOp
from mllm_compiler.dialects.types import dtype_of, element_of
from mllm_compiler.passes.folded_weights import numbers_of
from mllm_compiler.passes.samples import Samples
from mllm_compiler.quantisation.bias_correction import correction
from mllm_compiler.quantisation.grid import Floats
from mllm_compiler.reference import Array, Frame
from mllm_compiler.weights import WeightStore


def corrected_bias(
    op: LinearOp,
    matrices: tuple[Floats, Floats],
    seen: Callable[[Frame], Array] | None,
    samples: Samples,
    store: WeightStore,
) -> Array | None:
    """The bias of a product, or one where it has none, that takes back its mean error.

    Args:
        op: The product, whose inputs the samples have.
        matrices: [N, K] each: the weight, and what its codes mean.
        seen: What the codes of the inputs mean in a frame; the inputs themselves where None.
        samples: The samples.
        store: Where the bias it has lies.

    Returns:
        [N] in the type of the result; None where the bias is computed as the model runs.
    """
    before = np.float32(0) if op.bias is None else numbers_of(op.bias, store)
    if before is None:
        return None
    mean = mean_row(samples.of_value(op.x))
    coded = mean if seen is None else mean_row([seen(frame) for frame in samples.frames])
    bias = before + correction(*matrices, mean, coded)
    return bias.astype(dtype_of(element_of(op.result)))


def mean_row(arrays: Sequence[Array]) -> Floats:
    """[K]: the mean of the rows [..., K] of some arrays."""
    rows = [array.reshape(-1, array.shape[-1]) for array in arrays]
    total = np.sum([part.sum(0, dtype=np.float64) for part in rows], 0)
    return (total / max(1, sum(map(len, rows)))).astype(np.float32)
