"""Corrected biases beside the outputs of the calibration rows, whose mean must come back."""

from __future__ import annotations

import numpy as np

from mllm_compiler.quantisation.bias_correction import correction
from mllm_compiler.quantisation.grid import Grid, round_to_nearest


def test_the_mean_output_is_that_of_the_float_layer() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(500, 24)).astype(np.float32) + generator.normal(size=24)
    weight = generator.normal(size=(10, 24)).astype(np.float32)
    codes = round_to_nearest(weight, Grid(bits=3))
    wanted, made = x @ weight.T, x @ codes.dequantised().T
    bias = correction(weight, codes.dequantised(), x.mean(0).astype(np.float32))
    assert np.abs(made.mean(0) - wanted.mean(0)).max() > 0.05
    np.testing.assert_allclose((made + bias).mean(0), wanted.mean(0), atol=1e-5)
    assert ((made + bias - wanted) ** 2).mean() < ((made - wanted) ** 2).mean()


def test_the_error_of_the_inputs_is_corrected_too() -> None:
    generator = np.random.default_rng(1)
    x = generator.normal(size=(500, 24)).astype(np.float32)
    shifted = x * np.float32(0.9) + np.float32(0.2)
    weight = generator.normal(size=(10, 24)).astype(np.float32)
    codes = round_to_nearest(weight, Grid(bits=4))
    bias = correction(weight, codes.dequantised(), x.mean(0), shifted.mean(0))
    made = shifted @ codes.dequantised().T + bias
    np.testing.assert_allclose(made.mean(0), (x @ weight.T).mean(0), atol=1e-5)
