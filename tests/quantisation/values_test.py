"""Encodings of values: codes are ONNX's `QuantizeLinear`, ranges are NumPy's percentiles and the
best of all that are tried."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from mllm_compiler.quantisation.values import PARTS, Encoding, reach_of, union

QDQ = """
<ir_version: 10, opset_import: ["" : 21]>
f (float[n] x, float s, CODE z) => (CODE[n] y) { y = QuantizeLinear (x, s, z) }
"""
RNG = np.random.default_rng(3)
NUMBERS = RNG.standard_normal(4000).astype(np.float32)


def encode8(reach: tuple[float, float]) -> Encoding:
    return Encoding.of(reach, 8, symmetric=False)


@pytest.mark.parametrize(("bits", "symmetric"), [(8, False), (8, True), (16, True), (16, False)])
def test_codes_are_those_of_onnx(bits: int, symmetric: bool) -> None:
    reach = -1.5, 4.0
    encoding = Encoding.of(reach, bits, symmetric=symmetric)
    dtype = np.int8 if bits == 8 else np.int16
    scale, zero = np.float32(encoding.scale), np.array(encoding.zero_point, dtype)
    model = onnx.parser.parse_model(QDQ.replace("CODE", dtype.__name__))
    (want,) = ReferenceEvaluator(model).run(None, {"x": NUMBERS, "s": scale, "z": zero})
    codes = encoding.encoded(NUMBERS)
    assert codes.dtype == dtype
    np.testing.assert_array_equal(codes, want)
    inside = NUMBERS[(NUMBERS > -1.5) & (NUMBERS < 4)]
    apart = np.abs(encoding.decoded(encoding.encoded(inside)) - inside)
    assert apart.max() <= encoding.scale * 0.51
    assert encoding.decoded(encoding.encoded(np.zeros(1))) == 0


def test_the_ends_of_a_range_have_codes() -> None:
    encoding = encode8((-1.0, 3.0))
    assert encoding.reach == pytest.approx((-1.0, 3.0), abs=encoding.scale)
    assert encoding.encoded(np.array([-9.0, 9.0])).tolist() == [-128, 127]
    assert Encoding.of((-1.0, 3.0), 16, symmetric=True).reach[1] == pytest.approx(3.0)
    assert encode8((0.0, 0.0)) == encode8((0.0, 1.0))


def test_min_and_max_hold_zero_and_every_sample() -> None:
    arrays = [np.array([[1.0, 2.0]]), np.array([3.0, 0.5])]
    assert reach_of(arrays, "minmax", encode8) == (0.0, 3.0)
    assert union([(0.0, 3.0), (-1.0, 2.0)]) == (-1.0, 3.0)


def test_a_percentile_leaves_the_rarest_out() -> None:
    loud = np.concatenate([NUMBERS, [1000.0]]).astype(np.float32)
    low, high = reach_of([loud], "percentile", encode8)
    assert (low, high) == pytest.approx(tuple(np.percentile(loud, [0.01, 99.99])))
    assert high < 1000


def test_the_least_squared_error_is_found() -> None:
    """Three loud numbers of 4,003: to reach them costs all others more than to cut them off."""
    loud = np.concatenate([NUMBERS, [30.0, 31.0, 33.0]]).astype(np.float32)
    found = reach_of([loud], "mse", encode8)
    errors = {}
    for part in PARTS:
        scale = float(loud.max() - loud.min()) * part / 255
        zero = round(-128 - loud.min() * part / scale)
        codes = np.clip(np.rint(loud / scale) + zero, -128, 127)
        errors[part] = float(np.square((codes - zero) * scale - loud).sum())
    best = min(errors, key=lambda p: errors[p])
    assert found == pytest.approx((loud.min() * best, loud.max() * best))
    assert reach_of([NUMBERS], "mse", encode8)[1] > 0.8 * NUMBERS.max()


def test_a_hidden_score_is_no_measure_of_the_range() -> None:
    """What a mask hides lies so far below the rest that e to its power is nothing in 16 bits."""
    scores = np.array([-1e9, -2.0, 3.0, -1e9 + 5], np.float32)
    assert reach_of([scores], "minmax", encode8) == (-18.0, 3.0)
    assert np.exp(-16) < 2**-16
    assert reach_of([np.array([0.0, -1e9])], "minmax", encode8) == (-64.0, 0.0)
