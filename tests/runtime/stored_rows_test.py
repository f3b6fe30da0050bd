"""Vectors times rows of floats, halves and codes: every instruction set against plain loops."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from cffi import FFI
from numpy.typing import NDArray

from runtime_stub.library import CData
from tests.runtime.cases import F32
from tests.runtime.internals import ROOT
from tests.runtime.kernel_test import HERE

FLAGS = {
    "scalar": (),
    "avx2": ("-mavx2", "-mfma", "-mf16c"),
    "avx512": ("-mavx512f", "-mavx512vl", "-mavx512bw", "-mavx512dq", "-mfma"),
}
CPUS = [cpu for cpu in FLAGS if cpu in HERE]
LANES = {"scalar": 4, "avx2": 8, "avx512": 16}
FLOATS, HALVES, CODES, SCALED = range(4)
COUNTS = (0, 1, 3, 4, 7, 8, 13, 16, 33)
WIDTHS = (1, 4, 15, 16, 20, 64, 67, 80, 128, 131)


def declarations() -> str:
    """The types of stored rows and their products, as the headers have them."""
    codes = (ROOT / "kv/row_codes.h").read_text()
    ops = (ROOT / "kernels/ops.h").read_text()
    found = [
        re.search(rf"typedef struct {name} \{{.*?\}} {name};", text, re.DOTALL)
        for name, text in (
            ("mllm_kv_stored", codes),
            ("mllm_row_product", ops),
            ("mllm_stored_ops", ops),
        )
    ]
    return "\n".join(match[0] for match in found if match)


@dataclass
class Stored:
    """Rows as they are stored, and what they mean."""

    kind: int
    data: NDArray[np.generic]
    floats: F32
    scales: NDArray[np.float16]
    channels: F32


@dataclass
class Ops:
    """The products of one instruction set."""

    ffi: CData
    table: CData
    cpu: str

    def dots(self, a: F32, rows: Stored, count: int) -> F32:
        out = np.full((len(a), count + 3), 7, np.float32)
        self._run("dots", a, rows, count, out)
        assert (out[:, count:] == 7).all()
        return out[:, :count]

    def add_rows(self, out: F32, weights: F32, rows: Stored, count: int) -> F32:
        wide = np.pad(out, ((0, 0), (0, 5)), constant_values=7)
        self._run("add_rows", weights, rows, count, wide)
        assert (wide[:, out.shape[1] :] == 7).all()
        return wide[:, : out.shape[1]]

    def _run(self, name: str, a: F32, rows: Stored, count: int, out: F32) -> None:
        cast = self.ffi.cast
        x = self.ffi.new("mllm_kv_stored *")
        x.format = min(rows.kind, CODES)
        x.data, x.stride = cast("void *", rows.data.ctypes.data), rows.data.shape[1]
        if rows.kind >= CODES:
            x.scales = cast("uint16_t *", rows.scales.ctypes.data)
        if rows.kind == SCALED:
            x.channels = cast("float *", rows.channels.ctypes.data)
        p = self.ffi.new("mllm_row_product *")
        p.x, p.count, p.n, p.vectors = x, count, rows.floats.shape[1], len(a)
        p.a, p.a_stride = cast("float *", a.ctypes.data), a.shape[1]
        p.out, p.out_stride = cast("float *", out.ctypes.data), out.shape[1]
        getattr(self.table, name)(p)


@pytest.fixture(scope="module", params=CPUS)
def ops(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ops:
    cpu: str = request.param
    compiler = shutil.which("cc")
    assert compiler is not None
    path: Path = tmp_path_factory.mktemp(cpu) / "librows.so"
    flags = [
        "-std=c11",
        "-O2",
        "-ffp-contract=fast",
        "-g",
        "-fPIC",
        "-shared",
        "-fsanitize=undefined",
    ]
    include = f"-I{ROOT / 'include'}"
    source = str(ROOT / "kernels/stored_rows.c")
    command = [compiler, *flags, "-fno-sanitize-recover=all", *FLAGS[cpu], include]
    subprocess.run([*command, f"-DMLLM_VARIANT={cpu}", "-o", str(path), source], check=True)
    ffi = FFI()
    ffi.cdef(declarations() + f"\nextern mllm_stored_ops mllm_stored_ops_{cpu};")
    library = ffi.dlopen(str(path))
    return Ops(ffi, getattr(library, f"mllm_stored_ops_{cpu}"), cpu)


def whole(generator: np.random.Generator, *shape: int) -> F32:
    """Small whole numbers, whose sums are exact in every order."""
    return generator.integers(-9, 10, shape).astype(np.float32)


def stored(generator: np.random.Generator, kind: int, count: int, n: int, pad: int = 3) -> Stored:
    """Rows that stand further apart than they are wide."""
    numbers = whole(generator, count + 1, n + pad)
    scales = (2.0 ** generator.integers(-2, 3, count + 1)).astype(np.float16)
    channels = (2.0 ** generator.integers(-2, 3, n)).astype(np.float32)
    types = (np.float32, np.float16, np.int8, np.int8)
    floats = numbers[:, :n].copy()
    if kind >= CODES:
        floats *= scales[:, None].astype(np.float32)
    if kind == SCALED:
        floats *= channels
    return Stored(kind, numbers.astype(types[kind]), floats, scales, channels)


@pytest.mark.parametrize("kind", [FLOATS, HALVES, CODES, SCALED])
def test_whole_numbers_give_what_plain_loops_give(ops: Ops, kind: int) -> None:
    generator = np.random.default_rng(kind)
    for count, n, vectors in itertools.product(COUNTS, WIDTHS, (1, 2, 3, 5)):
        rows = stored(generator, kind, count, n)
        a, y = whole(generator, vectors, n), whole(generator, vectors, n)
        weights = whole(generator, vectors, count + 2)
        numbers = rows.floats[:count]
        np.testing.assert_array_equal(ops.dots(a, rows, count), a @ numbers.T)
        expected = y + weights[:, :count] @ numbers
        np.testing.assert_array_equal(ops.add_rows(y, weights, rows, count), expected)


@pytest.mark.parametrize("kind", [FLOATS, HALVES, CODES, SCALED])
def test_bits_do_not_depend_on_company_or_storage(ops: Ops, kind: int) -> None:
    generator = np.random.default_rng(kind)
    for count, n in itertools.product(COUNTS, WIDTHS):
        rows = stored(generator, kind, count, n)
        plain = Stored(FLOATS, rows.floats, rows.floats, rows.scales, rows.channels)
        a = generator.standard_normal((3, n), np.float32)
        weights = generator.standard_normal((3, count + 1), np.float32)
        y = generator.standard_normal((3, n), np.float32)
        dots, sums = ops.dots(a, rows, count), ops.add_rows(y, weights, rows, count)
        for i in range(3):
            one = slice(i, i + 1)
            np.testing.assert_array_equal(dots[one], ops.dots(a[one], plain, count))
            alone = ops.add_rows(y[one], weights[one], plain, count)
            np.testing.assert_array_equal(sums[one], alone)


def lanes_sum(v: F32) -> F32:
    """[..., lanes]: the upper half is added to the lower until one is left."""
    while v.shape[-1] > 1:
        half = v.shape[-1] // 2
        v = v[..., :half] + v[..., half:]
    return v[..., 0]


def test_sums_have_their_order(ops: Ops) -> None:
    """Products that are exact, so that a fused sum rounds as two operations do."""
    lanes, generator = LANES[ops.cpu], np.random.default_rng(1)
    n, count = 4 * lanes, 12
    a = np.ldexp(whole(generator, 1, n), generator.integers(-12, 12, n)).astype(np.float32)
    rows = stored(generator, FLOATS, count, n)
    expected = np.zeros((count, lanes), np.float32)
    for i in range(0, n, lanes):
        expected += a[0, i : i + lanes] * rows.floats[:count, i : i + lanes]
    np.testing.assert_array_equal(ops.dots(a, rows, count)[0], lanes_sum(expected))


def test_every_half_is_read(ops: Ops) -> None:
    """All bit patterns of half floats, infinities and NaN too."""
    n = 64
    halves = np.arange(65536, dtype=np.uint16).view(np.float16).reshape(-1, n)
    rows = Stored(HALVES, halves, np.zeros((1, n), np.float32), halves[0], np.zeros(n, np.float32))
    for i, row in enumerate(halves):
        rows.data = halves[i : i + 1]
        y = np.zeros((1, n), np.float32)
        found = ops.add_rows(y, np.ones((1, 1), np.float32), rows, 1)[0]
        np.testing.assert_array_equal(found, row.astype(np.float32))
