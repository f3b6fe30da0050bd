"""The meanings of the quantisation ops, against the standard's reference, and sums of integers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.types import ELEMENTS, bounds_of, i8, ui8
from mllm_compiler.reference.mllm_quant import exact
from tests.reference.single_op import RNG, close, real, run, standard

STORAGE = [np.int8, np.uint8, np.int16, np.uint16, ml_dtypes.int4, ml_dtypes.uint4]


def codes(dtype, *shape: int) -> np.ndarray:
    lowest, largest = bounds_of(ELEMENTS[np.dtype(dtype)])
    return RNG.integers(lowest, largest, shape, endpoint=True).astype(dtype)


@pytest.mark.parametrize("dtype", STORAGE, ids=lambda d: d.__name__)
@pytest.mark.parametrize("shape", [(), (4, 1), (1, 8)], ids=str)
def test_quantisation_of_a_tensor_and_of_an_axis(shape: tuple[int, ...], dtype) -> None:
    element, axis = ELEMENTS[np.dtype(dtype)], int(shape == (1, 8))
    x, scale, zero = real(4, 8) * 100, np.abs(real(*shape)) + 0.1, codes(dtype, *shape)
    theirs = [p.reshape(-1) if shape else p for p in (scale, zero)]
    ours = run(lambda x, s, z: mllm.QuantizeOp(x, s, z, element), x, scale, zero)[0]
    np.testing.assert_array_equal(ours, standard("QuantizeLinear", [x, *theirs], axis=axis)[0])
    back = run(mllm.DequantizeOp, ours, scale, zero)[0]
    close(back, standard("DequantizeLinear", [ours, *theirs], axis=axis)[0])


@pytest.mark.parametrize("dtype", STORAGE, ids=lambda d: d.__name__)
def test_quantisation_in_blocks(dtype) -> None:
    element, blocks = ELEMENTS[np.dtype(dtype)], {"axis": 1, "block_size": 3}
    # The last of three blocks of eight columns has two.
    x, scale, zero = real(4, 8) * 100, np.abs(real(4, 3)) + 0.1, codes(dtype, 4, 3)
    ours = run(lambda x, s, z: mllm.QuantizeOp(x, s, z, element, **blocks), x, scale, zero)[0]
    wide = [np.repeat(p.astype(np.float64), 3, 1)[:, :8] for p in (scale, zero)]
    lowest, largest = bounds_of(element)
    expected = np.clip(np.rint(x / wide[0].astype(np.float32)) + wide[1], lowest, largest)
    np.testing.assert_array_equal(ours.astype(np.float64), expected)
    back = run(lambda x, s, z: mllm.DequantizeOp(x, s, z, **blocks), ours, scale, zero)[0]
    close(back, ((expected - wide[1]) * wide[0]).astype(np.float32))


def test_ties_go_to_the_even_code_and_codes_saturate() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 127.5, 1e9, -1e9, np.inf], np.float32)
    one = np.array(1, np.float32)
    ours = run(lambda x, s: mllm.QuantizeOp(x, s, None, i8), x, one)[0]
    np.testing.assert_array_equal(ours, [0, 2, 2, 0, -2, 127, 127, -128, 127])


@pytest.mark.parametrize("x", [real(3, 5), -np.abs(real(3, 5)), np.abs(real(3, 5)) + 1])
def test_dynamic_quantisation_of_a_tensor(x: np.ndarray) -> None:
    ours = run(lambda x: mllm.DynamicQuantizeOp(x, ui8, symmetric=False), x)
    for our, their in zip(ours, standard("DynamicQuantizeLinear", [x], outputs=3), strict=True):
        close(np.asarray(our), their)


def test_dynamic_quantisation_of_tokens() -> None:
    x = real(2, 3, 8)
    x[0, 1] = 0
    ours, scale = run(lambda x: mllm.DynamicQuantizeOp(x, i8, symmetric=True, axis=2), x)
    top = np.abs(x).max(-1, keepdims=True)
    close(scale, np.where(top == 0, 1, top / np.float32(127)).astype(np.float32))
    np.testing.assert_array_equal(np.abs(ours).max(-1), [[127, 0, 127], [127, 127, 127]])
    assert np.abs(ours * scale - x).max() <= scale.max() / 2 * 1.001


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "asymmetric"])
def test_dynamic_quantisation_of_blocks(axis: int, symmetric: bool) -> None:
    """Each block by itself is what a tensor that is quantised whole is."""
    x, element = real(2, 8, 8), i8 if symmetric else ui8
    x[0, 1] = 0
    # The last of three blocks has two.
    found = run(
        lambda x: mllm.DynamicQuantizeOp(x, element, symmetric=symmetric, axis=axis, block_size=3),
        x,
    )
    for at, columns in enumerate((range(3), range(3, 6), range(6, 8))):
        alone = run(
            lambda b: mllm.DynamicQuantizeOp(b, element, symmetric=symmetric, axis=axis),
            x.take(columns, axis),
        )
        np.testing.assert_array_equal(found[0].take(columns, axis), alone[0])
        for ours, theirs in zip(found[1:], alone[1:], strict=True):
            np.testing.assert_array_equal(ours.take([at], axis), theirs)


@pytest.mark.parametrize("x_zeros", ["scale", "both"])
def test_rows_in_blocks_are_the_product_of_what_the_codes_mean(x_zeros: str) -> None:
    x, weight, bias = codes(np.uint8, 2, 3, 18), codes(ml_dtypes.int4, 6, 18), real(6)
    x_scale, x_zero = np.abs(real(2, 3, 4)) + 0.01, codes(np.uint8, 2, 3, 4)
    scale = np.abs(real(6, 4)) + 0.01
    x_zero = x_zero if x_zeros == "both" else x_zero[..., :1]
    ours = run(
        lambda x, sx, w, sw, zx, b: mllm.QuantizedLinearOp(
            x, sx, w, sw, x_zero=zx, bias=b, block_size=5
        ),
        *(x, x_scale, weight, scale, x_zero, bias),
    )[0]
    zeros = np.broadcast_to(x_zero.astype(np.float64), x_scale.shape)
    wide_zero, wide_scale, w_scale = (
        np.repeat(p.astype(np.float64), 5, -1)[..., :18] for p in (zeros, x_scale, scale)
    )
    rows, matrix = (x - wide_zero) * wide_scale, weight.astype(np.float64) * w_scale
    close(ours, (rows @ matrix.T + bias).astype(np.float32))


@pytest.mark.parametrize("size", [None, 5], ids=["rows", "blocks"])
def test_a_quantised_linear_is_the_product_of_what_the_codes_mean(size: int | None) -> None:
    count = 1 if size is None else 4
    x, weight, bias = codes(np.uint8, 2, 3, 18), codes(ml_dtypes.int4, 6, 18), real(6)
    x_scale, x_zero = np.abs(real(2, 3, 1)) + 0.01, codes(np.uint8, 2, 3, 1)
    scale, zero = np.abs(real(6, count)) + 0.01, codes(ml_dtypes.int4, 6, count)
    ours = run(
        lambda x, sx, w, sw, zx, zw, b: mllm.QuantizedLinearOp(
            x, sx, w, sw, x_zero=zx, weight_zero=zw, bias=b, block_size=size
        ),
        *(x, x_scale, weight, scale, x_zero, zero, bias),
    )[0]
    rows = (x.astype(np.float64) - x_zero) * x_scale
    wide = [np.repeat(p.astype(np.float64), size or 18, 1)[:, :18] for p in (scale, zero)]
    matrix = (weight.astype(np.float64) - wide[1]) * wide[0]
    close(ours, (rows @ matrix.T + bias).astype(np.float32))


def test_a_quantised_linear_is_rounded_once() -> None:
    one, scale, third = np.ones((1, 1), np.int8), np.float32(0.1), np.float32(1 / 3)
    product = float(scale) * float(third)
    ours = run(
        lambda x, sx, w, sw, b: mllm.QuantizedLinearOp(x, sx, w, sw, bias=b),
        *(one, np.array(scale), one, np.array(third), np.array([-product], np.float32)),
    )[0]
    assert ours.item() == np.float32(product - float(np.float32(product))) != 0


def test_an_integer_product_equals_the_standards() -> None:
    a, b, zero_a, zero_b = codes(np.uint8, 2, 7), codes(np.int8, 7, 3), np.uint8(9), np.int8(-3)
    theirs = standard("MatMulInteger", [a, b, np.array(zero_a), np.array(zero_b)])[0]
    ours = run(
        lambda a, b, x, y: mllm.IntegerMatmulOp(a, b, a_zero=x, b_zero=y),
        *(a, b, np.array(zero_a), np.array(zero_b)),
    )[0]
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    "bits", [8, 12, 16, 30], ids=["single", "past single", "double", "integers"]
)
def test_sums_of_integers_are_exact(bits: int) -> None:
    a, b = (RNG.integers(-(1 << bits), 1 << bits, s) for s in ((3, 50), (50, 4)))
    wide = [[sum(int(x) * int(y) for x, y in zip(r, c, strict=True)) for c in b.T] for r in a]
    np.testing.assert_array_equal(exact(np.matmul, a, b, 50), wide)
