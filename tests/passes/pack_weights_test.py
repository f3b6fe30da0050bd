"""Packed weights: the layout, its inverse, and streams that stay small."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllm_compiler.backends.artifact import stream_weights
from mllm_compiler.passes import pack_weights
from mllm_compiler.passes.pack_weights import PackedWeight, pack_panels, unpack_panels
from mllm_compiler.reference.panels import pack_quads, unpack_quads
from mllm_compiler.weights import DTYPES, NARROW, WeightStore


@given(st.integers(1, 70), st.integers(1, 9), st.integers(1, 3))
def test_panel_p_row_k_lane_j_is_row_16p_plus_j_column_k(
    rows: int, columns: int, step: int
) -> None:
    matrix = np.arange(1, rows * columns + 1, dtype=np.float32).reshape(rows, columns)
    original, pack_weights.CHUNK = pack_weights.CHUNK, step * 16 * columns * 4
    try:
        panels = np.concatenate(list(pack_panels(matrix)))
    finally:
        pack_weights.CHUNK = original
    assert panels.shape == (-(-rows // 16), columns, 16)
    for p, k, j in np.ndindex(*panels.shape):
        row = 16 * p + j
        assert panels[p, k, j] == (matrix[row, k] if row < rows else 0)
    np.testing.assert_array_equal(unpack_panels(panels, rows), matrix)


def weight(store: WeightStore, array: np.ndarray, layout: str, offset: int) -> PackedWeight:
    digest = store.add(array)
    return PackedWeight(
        name="w", digest=digest, dtype="f32", shape=array.shape, layout=layout, offset=offset
    )


def test_a_stream_is_padded_to_the_offsets_and_the_total() -> None:
    store = WeightStore()
    small = np.array([1, 2, 3], np.float32)
    matrix = np.arange(20, dtype=np.float32).reshape(5, 4)
    weights = [weight(store, small, "plain", 0), weight(store, matrix, "panel16", 64)]
    assert [w.nbytes for w in weights] == [12, 256]
    raw = b"".join(stream_weights(weights, 384, store))
    assert len(raw) == 384
    assert raw[:12] == small.tobytes()
    assert raw[12:64] == bytes(52)
    assert raw[64:320] == np.concatenate(list(pack_panels(matrix))).tobytes()
    assert raw[320:] == bytes(64)


@pytest.mark.parametrize("layout", ["plain", "panel16"])
def test_a_large_weight_is_streamed_in_pieces(layout: str) -> None:
    store = WeightStore()
    large = weight(store, np.ones((4096, 4096), np.float32), layout, 0)
    tracemalloc.start()
    total = sum(len(piece) for piece in large.chunks(store))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == large.nbytes == 64 << 20
    assert peak < 4 * pack_weights.CHUNK


def test_a_convolutions_filter_is_packed_as_a_matrix() -> None:
    store = WeightStore()
    array = np.random.default_rng(0).standard_normal((6, 2, 3, 3)).astype(np.float32)
    packed = weight(store, array, "panel16", 0)
    raw = b"".join(packed.chunks(store))
    panels = np.frombuffer(raw, np.float32).reshape(1, 18, 16)
    np.testing.assert_array_equal(unpack_panels(panels, 6), array.reshape(6, 18))


@given(st.sampled_from(["i4", "ui4", "i2", "ui2"]), st.integers(1, 70), st.integers(1, 19))
def test_codes_of_a_panel_share_bytes_along_k(dtype: str, rows: int, columns: int) -> None:
    """Byte b of a row holds the codes from 8b / bits on, low bits first."""
    bits, store = NARROW[DTYPES[dtype]], WeightStore()
    codes = np.arange(rows * columns, dtype=np.uint8).reshape(rows, columns) % (1 << bits)
    array = codes.view(DTYPES[dtype])
    packed = PackedWeight(
        name="w", digest=store.add(array), dtype=dtype, shape=(rows, columns), layout="panel16",
        offset=0,
    )  # fmt: skip
    original, pack_weights.CHUNK = pack_weights.CHUNK, 16 * columns
    try:
        raw = np.frombuffer(b"".join(packed.chunks(store)), np.uint8)
    finally:
        pack_weights.CHUNK = original
    assert len(raw) == packed.nbytes
    panels = raw.reshape(-(-rows // 16), -1, 16)
    for n, k in np.ndindex(rows, columns):
        shared = int(panels[n // 16, k * bits // 8, n % 16])
        assert shared >> k * bits % 8 & ((1 << bits) - 1) == codes[n, k]


@given(
    st.sampled_from(["i8", "ui8", "i4", "ui4", "i2", "ui2"]), st.integers(1, 70), st.integers(1, 39)
)
def test_four_codes_of_a_row_stand_side_by_side(dtype: str, rows: int, columns: int) -> None:
    """Byte (p, g, j, i) has code 4 (8 / bits g + s) + i of row 16p + j from bit s * bits on."""
    bits, store = NARROW.get(DTYPES[dtype], 8), WeightStore()
    codes = (np.arange(rows * columns) % (1 << bits)).astype(np.uint8).reshape(rows, columns)
    packed = PackedWeight(
        name="w", digest=store.add(codes.view(DTYPES[dtype])), dtype=dtype, shape=(rows, columns),
        layout="quads16", offset=0,
    )  # fmt: skip
    original, pack_weights.CHUNK = pack_weights.CHUNK, 16 * columns
    try:
        raw = np.frombuffer(b"".join(packed.chunks(store)), np.uint8)
    finally:
        pack_weights.CHUNK = original
    assert len(raw) == packed.nbytes
    together = 4 * 8 // bits
    found = raw.reshape(-(-rows // 16), -(-columns // together), 16, 4)
    for n, k in np.ndindex(rows, columns):
        shared = int(found[n // 16, k // together, n % 16, k % 4])
        assert shared >> k % together // 4 * bits & ((1 << bits) - 1) == codes[n, k]
    quads = pack_quads(codes, bits)
    np.testing.assert_array_equal(found, quads)
    again = unpack_quads(quads.view(np.int8) if dtype == "i8" else quads, rows, columns, dtype)
    np.testing.assert_array_equal(again.view(np.uint8) & ((1 << bits) - 1), codes)
