"""Weights in the layout that the kernels read, streamed one tensor at a time; exact.

A bundle holds each distinct (digest, layout) once. `panel16` interleaves 16 rows of a [N, K]
matrix, so that a kernel loads one vector for each k: panel p, row k, lane j is W[16p + j, k]. Codes
of less than a byte stay packed: a byte holds those of one row, low bits first along k. `quads16`,
of codes, has four of a row side by side, as products of bytes that are summed by fours read them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mllm_compiler.dialects.cpu.base import LANES
from mllm_compiler.dialects.cpu.weights import PLAIN, QUAD, QUADS16, packed_shape
from mllm_compiler.weights import DTYPES, NARROW, WeightStore, nbytes_of, unpacked

CHUNK: Final = 4 << 20
"""Bytes that are packed at a time."""

ALIGNMENT: Final = 64


@dataclass(frozen=True, kw_only=True)
class PackedWeight:
    """A weight of the artifact.

    Attributes:
        name: The name that the model gives it; the first, where it has several.
        digest: The digest of the weight as the model has it, before packing.
        dtype: The element type, in MLIR's spelling.
        shape: The shape as the model has it.
        layout: How the bytes are arranged.
        offset: Where it begins among the target's weights.
        inline: Its bytes before packing, where it is a constant of the program.
    """

    name: str
    digest: str
    dtype: str
    shape: tuple[int, ...]
    layout: str
    offset: int
    inline: bytes | None = None

    @property
    def nbytes(self) -> int:
        """Bytes in the layout, padding lanes included."""
        held = self.dtype if self.bits >= 8 else "ui8"
        return nbytes_of(held, packed_shape(self.shape, self.layout, self.bits))

    @property
    def bits(self) -> int:
        """The bits of an element."""
        dtype = DTYPES[self.dtype]
        return NARROW.get(dtype, 8 * dtype.itemsize)

    def chunks(self, store: WeightStore) -> Iterator[memoryview]:
        """The packed bytes, a few MiB at a time.

        Raises:
            KeyError: The store does not know the weight.
        """
        raw = self.inline if self.inline is not None else store.raw(self.digest)
        if self.layout == PLAIN:
            yield from _pieces(memoryview(raw))
            return
        if self.bits < 8 or self.layout == QUADS16:
            array = np.frombuffer(raw, np.uint8)
            yield from (p.reshape(-1).data for p in self._code_panels(array))
            return
        array = np.frombuffer(raw, DTYPES[self.dtype])
        for panels in pack_panels(array.reshape(self.shape[0], -1)):
            yield panels.reshape(-1).view(np.uint8).data

    def _code_panels(self, raw: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:
        """The panels of codes, a few at a time: 16 rows are whole bytes, where codes share them."""
        rows, columns, bits = self.shape[0], prod(self.shape[1:]), self.bits
        step = max(1, CHUNK // max(1, LANES * columns)) * LANES
        for start in range(0, rows, step):
            count = min(step, rows - start)
            first, last = (n * columns * bits for n in (start, start + count))
            part = raw[first // 8 : -(-last // 8)]
            codes = unpacked(part, DTYPES[self.dtype], count * columns).reshape(count, columns)
            together = (QUAD if self.layout == QUADS16 else 1) * 8 // bits
            narrow = codes.view(np.uint8) & ((1 << bits) - 1)
            wide = np.pad(narrow, ((0, 0), (0, -columns % together)))
            for panels in pack_panels(wide):
                yield quads(panels, bits) if self.layout == QUADS16 else share_bytes(panels, bits)


def pack_panels(matrix: NDArray[np.generic]) -> Iterator[NDArray[np.generic]]:
    """The panels [n, K, 16] of a [N, K] matrix, as many at a time as fill a chunk."""
    rows, columns = matrix.shape
    step = max(1, CHUNK // max(1, LANES * columns * matrix.itemsize)) * LANES
    for start in range(0, rows, step):
        block = matrix[start : start + step]
        panels = -(-len(block) // LANES)
        if len(block) < panels * LANES:
            padded = np.zeros((panels * LANES, columns), matrix.dtype)
            padded[: len(block)] = block
            block = padded
        yield np.ascontiguousarray(block.reshape(panels, LANES, columns).transpose(0, 2, 1))


def share_bytes(panels: NDArray[np.generic], bits: int) -> NDArray[np.uint8]:
    """Panels [P, K, 16] of codes as [P, K * bits / 8, 16] bytes, low bits first along K."""
    count, columns, lanes = panels.shape
    apart = panels.reshape(count, columns * bits // 8, 8 // bits, lanes).astype(np.uint8)
    places = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    return np.ascontiguousarray(np.bitwise_or.reduce(apart << places, axis=2))


def quads(panels: NDArray[np.generic], bits: int) -> NDArray[np.uint8]:
    """Panels [P, K, 16] of codes as [P, groups, 16, 4] bytes, four codes of a row side by side."""
    count, columns, lanes = panels.shape
    each = 8 // bits
    apart = panels.reshape(count, columns // (each * QUAD), each, QUAD, lanes).astype(np.uint8)
    places = np.arange(0, 8, bits, dtype=np.uint8)[:, None, None]
    return np.ascontiguousarray(np.bitwise_or.reduce(apart << places, axis=2).swapaxes(2, 3))


def unpack_panels(panels: NDArray[np.generic], rows: int) -> NDArray[np.generic]:
    """The [rows, K] matrix of panels [P, K, 16]."""
    count, columns, lanes = panels.shape
    return panels.transpose(0, 2, 1).reshape(count * lanes, columns)[:rows]


def _pieces(raw: memoryview) -> Iterator[memoryview]:
    for start in range(0, len(raw), CHUNK):
        yield raw[start : start + CHUNK]
