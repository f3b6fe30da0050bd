"""Pages of keys and values: rows against the rounding of NumPy and of the reference, exactly."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from mllm_compiler.reference import kv_cache
from runtime_stub.library import CData
from tests.runtime.internals import Internals

F32 = NDArray[np.float32]
AS_FLOATS, AS_HALVES, BY_8, BY_4 = range(4)
NATIVE, DEMOTED, SINKS = range(3)
KEY, VALUE = range(2)
PAGE, HEADS = 256, 2


@dataclass
class Pages:
    """A layout and pages of it."""

    internals: Internals
    dim: int
    formats: Sequence[int]
    scales: NDArray[np.float16] | None = None
    recent: int = 0
    tokens: int = PAGE
    heads: int = HEADS

    def __post_init__(self) -> None:
        ffi, lib = self.internals.ffi, self.internals.lib
        self._formats = ffi.new("uint32_t[]", list(self.formats))
        halves = ffi.NULL if self.scales is None else ffi.from_buffer("uint16_t[]", self.scales)
        shape = [len(self.formats), self.heads, self.dim, self.tokens, 1000, self.recent]
        name = ffi.new("char[]", b"kv")
        info = ffi.new("mllm_cache_info *", [name, *shape, 0, self._formats, halves])
        layout, self.error = ffi.new("mllm_kv_layout *"), ffi.new("mllm_error *")
        self.status = lib.mllm_kv_layout_make(layout, info, self.error)
        self.layout: CData = ffi.gc(layout, lib.mllm_kv_layout_free)

    @property
    def bytes(self) -> list[int]:
        return list(self.layout.bytes)

    def page(self, state: int) -> CData:
        return self.internals.ffi.new("unsigned char[]", self.bytes[state])

    def write(self, page: CData, layer: int, kind: int, rows: F32, token: int = 0) -> None:
        """Rows [heads, tokens, dim], given as [tokens, heads, dim]."""
        ffi = self.internals.ffi
        major = np.ascontiguousarray(rows.transpose(1, 0, 2))
        for head in range(self.heads):
            at = ffi.cast("const float *", major.ctypes.data) + head * self.dim
            place = (layer, kind, head, token, at, self.heads * self.dim, rows.shape[1])
            self.internals.lib.mllm_kv_write_rows(self.layout, page, *place)

    def read(
        self, page: CData, state: int, layer: int, kind: int, cut: tuple[int, int] | None = None
    ) -> F32:
        first, stop = cut or (0, self.tokens)
        found = np.empty((self.heads, stop - first, self.dim), np.float32)
        for head in range(self.heads):
            out = self.internals.ffi.cast("float *", found[head].ctypes.data)
            place = (state, layer, kind, head, first, stop - first, out)
            self.internals.lib.mllm_kv_read_rows(self.layout, page, *place)
        return found

    def demoted(self, page: CData, state: int) -> CData:
        low = self.page(state)
        self.internals.lib.mllm_kv_demote(self.layout, page, low, state)
        return low


def rows_of(kind: str, dim: int, tokens: int = PAGE) -> F32:
    """Rows [heads, tokens, dim] of one kind."""
    rng = np.random.default_rng(dim)
    plain = rng.standard_normal((HEADS, tokens, dim)).astype(np.float32)
    match kind:
        case "constant":
            return np.full_like(plain, 0.3)
        case "zero":
            return np.zeros_like(plain)
        case "huge":
            return plain * np.float32(1e36)
        case "subnormal":
            return plain * np.float32(1e-40)
        case "mixed":
            sizes = 10.0 ** rng.integers(-12, 9, (HEADS, tokens, dim))
            return (plain * sizes).astype(np.float32)
        case "strange":
            plain[0, 3, 1], plain[0, 40, 2], plain[1, 70, 3] = np.nan, np.inf, -np.inf
            return plain
        case _:
            return plain


KINDS = ("plain", "constant", "zero", "huge", "subnormal", "mixed", "strange")
DIMS = (16, 64, 80, 128)


def scales_of(layers: int, dim: int) -> NDArray[np.float16]:
    rng = np.random.default_rng(1)
    return rng.uniform(0.01, 30, (layers, HEADS, dim)).astype(np.float16)


@pytest.mark.parametrize("dim", [1, 3, 64])
@pytest.mark.parametrize("kind", KINDS)
def test_floats_stay_and_halves_are_rounded(internals: Internals, kind: str, dim: int) -> None:
    rows = np.zeros((HEADS, 7, dim), np.float32)
    rows[:, :, :] = rows_of(kind, 64)[:, :7, :dim]
    pages = Pages(internals, dim, [AS_FLOATS, AS_HALVES, AS_FLOATS], tokens=7)
    page = pages.page(NATIVE)
    for layer, side in itertools.product(range(3), (KEY, VALUE)):
        pages.write(page, layer, side, rows + np.float32(layer + side))
    for layer, side in itertools.product(range(3), (KEY, VALUE)):
        want = rows + np.float32(layer + side)
        with np.errstate(over="ignore"):
            want = want.astype(np.float16).astype(np.float32) if layer == 1 else want
        np.testing.assert_array_equal(pages.read(page, NATIVE, layer, side), want)
    assert pages.bytes == [HEADS * 2 * (2 * 7 * dim * 4 + -(-7 * dim * 2 // 4) * 4), 0, 0]


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("kind", KINDS)
def test_codes_mean_what_the_reference_says(internals: Internals, kind: str, dim: int) -> None:
    """8 bits, 4 bits of those, and sinks that keep 8."""
    rows, scales = rows_of(kind, dim), scales_of(2, dim)
    pages = Pages(internals, dim, [BY_8, BY_4], scales, recent=0)
    native = pages.page(NATIVE)
    with np.errstate(all="ignore"):
        eight = {
            (0, KEY): kv_cache.eight_bit_keys(rows[None], scales[0]),
            (0, VALUE): kv_cache.eight_bit_values(rows[None]),
            (1, KEY): kv_cache.eight_bit_keys(-rows[None], scales[1]),
            (1, VALUE): kv_cache.eight_bit_values(-rows[None]),
        }
    for layer, side in eight:
        pages.write(native, layer, side, -rows if layer else rows)
    low = {state: pages.demoted(native, state) for state in (DEMOTED, SINKS)}
    for (layer, side), want in eight.items():
        np.testing.assert_array_equal(pages.read(native, NATIVE, layer, side), want[0])
        four_bits = kv_cache.four_bit_values if side else kv_cache.four_bit_keys
        with np.errstate(all="ignore"):
            four = four_bits(want)
        np.testing.assert_array_equal(pages.read(low[DEMOTED], DEMOTED, layer, side), four[0])
        four[:, :, : kv_cache.GROUP] = want[:, :, : kv_cache.GROUP]
        np.testing.assert_array_equal(pages.read(low[SINKS], SINKS, layer, side), four[0])


@pytest.mark.parametrize("kind", ["plain", "mixed"])
def test_pages_of_halves_fall_to_4_bits_too(internals: Internals, kind: str) -> None:
    rows = rows_of(kind, 64)
    pages = Pages(internals, 64, [AS_HALVES])
    native = pages.page(NATIVE)
    with np.errstate(over="ignore"):
        halves = rows.astype(np.float16).astype(np.float32)
    pages.write(native, 0, KEY, rows)
    pages.write(native, 0, VALUE, rows)
    low = pages.demoted(native, DEMOTED)
    with np.errstate(all="ignore"):
        keys, values = kv_cache.four_bit_keys(halves[None]), kv_cache.four_bit_values(halves[None])
    np.testing.assert_array_equal(pages.read(low, DEMOTED, 0, KEY), keys[0])
    np.testing.assert_array_equal(pages.read(low, DEMOTED, 0, VALUE), values[0])


@pytest.mark.parametrize("state", [NATIVE, DEMOTED, SINKS])
def test_a_part_of_a_page_is_read_as_the_whole_is(internals: Internals, state: int) -> None:
    pages = Pages(internals, 24, [BY_4])
    native = pages.page(NATIVE)
    for side in (KEY, VALUE):
        pages.write(native, 0, side, rows_of("plain", 24)[:, :200])
        pages.write(native, 0, side, rows_of("mixed", 24)[:, 200:], token=200)
    page = native if state == NATIVE else pages.demoted(native, state)
    for side, cut in itertools.product((KEY, VALUE), ((0, 1), (31, 33), (5, 255), (64, 128))):
        whole = pages.read(page, state, 0, side)
        np.testing.assert_array_equal(pages.read(page, state, 0, side, cut), whole[:, slice(*cut)])


@pytest.mark.parametrize("state", [DEMOTED, SINKS])
def test_a_page_that_was_demoted_is_native_again(internals: Internals, state: int) -> None:
    """Its tokens are those of 4 bits in 8; sinks have the very bytes that they had."""
    scales = scales_of(1, 64)
    pages = Pages(internals, 64, [BY_8], scales)
    native, back = pages.page(NATIVE), pages.page(NATIVE)
    for side in (KEY, VALUE):
        pages.write(native, 0, side, rows_of("plain", 64))
    low = pages.demoted(native, state)
    internals.lib.mllm_kv_promote(pages.layout, low, state, back)
    for side in (KEY, VALUE):
        four = pages.read(low, state, 0, side)[None]
        want = kv_cache.eight_bit_values(four) if side else kv_cache.eight_bit_keys(four, scales[0])
        if state == SINKS:
            want[0, :, :32] = pages.read(native, NATIVE, 0, side, (0, 32))
        np.testing.assert_array_equal(pages.read(back, NATIVE, 0, side), want[0])


def test_layers_of_other_formats_stay_where_pages_fall_by_length(internals: Internals) -> None:
    pages = Pages(internals, 16, [AS_FLOATS, BY_8, BY_4], recent=512)
    native = pages.page(NATIVE)
    for layer, side in itertools.product(range(3), (KEY, VALUE)):
        pages.write(native, layer, side, rows_of("plain", 16))
    low = pages.demoted(native, DEMOTED)
    for layer, side in itertools.product(range(3), (KEY, VALUE)):
        found, was = pages.read(low, DEMOTED, layer, side), pages.read(native, NATIVE, layer, side)
        assert np.array_equal(found, was) == (layer < 2)


@pytest.mark.parametrize("dim", [64, 128])
def test_a_demoted_page_takes_three_tenths_of_its_halves(internals: Internals, dim: int) -> None:
    """Scales, steps and least numbers are counted; the page of the sinks keeps an eighth at 8."""
    halves = Pages(internals, dim, [AS_HALVES] * 3).bytes[NATIVE]
    four = Pages(internals, dim, [BY_4] * 3)
    assert halves == 3 * 2 * HEADS * PAGE * dim * 2
    assert four.bytes[DEMOTED] <= 0.30 * halves
    assert four.bytes[SINKS] <= 0.33 * halves
    assert four.bytes[NATIVE] <= 0.52 * halves


@pytest.mark.parametrize(
    ("dim", "formats", "tokens", "recent"),
    [(600, [BY_4], 256, 0), (64, [BY_4], 40, 0), (64, [BY_4], 256, 100), (64, [7], 256, 0),
     (1 << 30, [0], 1 << 30, 0), (0, [0], 16, 0)],
)  # fmt: skip
def test_what_cannot_be_is_refused(
    internals: Internals, dim: int, formats: Sequence[int], tokens: int, recent: int
) -> None:
    pages = Pages(internals, dim, formats, tokens=tokens, recent=recent)
    assert pages.status != 0
    assert b"cache 'kv'" in internals.ffi.string(pages.error.message)


def test_pages_that_cannot_fall_have_no_size_then(internals: Internals) -> None:
    assert Pages(internals, 64, [BY_8], tokens=40).bytes[1:] == [0, 0]
