"""Weights in the layouts of the `cpu` dialect, as NumPy arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mllm_compiler.dialects.cpu.base import CpuOp
from mllm_compiler.dialects.cpu.weights import PLAIN, QUADS16, packed_shape
from mllm_compiler.dialects.types import tensor_type
from mllm_compiler.reference.executor import Array, Frame
from mllm_compiler.weights import NARROW, packed


def held(array: Array, layout: str) -> Array:
    """A weight as the target holds it; codes of less than a byte share bytes."""
    bits = NARROW.get(array.dtype, 8)
    if layout == PLAIN:
        return array if bits == 8 else packed(array)
    if layout == QUADS16:
        return pack_quads(array.view(np.uint8), bits).view(array.dtype if bits == 8 else np.uint8)
    return pack(array) if bits == 8 else pack_codes(array.view(np.uint8), bits)


def pack(matrix: Array) -> Array:
    """The panels [ceil(N / 16), K, 16] of [N, ...]: panel p, row k, lane j is W[16p + j, k]."""
    flat = matrix.reshape(matrix.shape[0], -1)
    panels, columns, lanes = packed_shape(flat.shape, "panel16")
    padded = np.zeros((panels * lanes, columns), flat.dtype)
    padded[: len(flat)] = flat
    return np.ascontiguousarray(padded.reshape(panels, lanes, columns).swapaxes(1, 2))


def unpack(panels: Array, rows: int) -> Array:
    """The [rows, K] matrix of panels."""
    count, columns, lanes = panels.shape
    return panels.swapaxes(1, 2).reshape(count * lanes, columns)[:rows]


def pack_codes(codes: NDArray[np.uint8], bits: int) -> Array:
    """The panels of codes of so many bits: byte b of a row holds those from 8b / bits on."""
    each = 8 // bits
    flat = codes.reshape(codes.shape[0], -1) & ((1 << bits) - 1)
    padded = np.pad(flat, ((0, 0), (0, -flat.shape[1] % each)))
    shared = sum(padded[:, i::each].astype(np.int64) << i * bits for i in range(each))
    return pack(np.asarray(shared).astype(np.uint8))


def unpack_codes(panels: Array, rows: int, columns: int, code: str) -> Array:
    """The [rows, columns] codes, i8 or ui8, of panels in a format as `ui4`."""
    bits, wide = int(code.lstrip("ui")), unpack(panels, rows)
    if bits == 8:
        return wide
    return split_codes(wide, code)[:, :columns]


def pack_quads(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """The quads [ceil(N / 16), groups, 16, 4] of codes [N, ...] of so many bits.

    Byte (p, g, j, i) has code QUAD * (g * each + s) + i of row 16p + j in its bits from s * bits
    on, where `each` codes share a byte.
    """
    flat = codes.reshape(codes.shape[0], -1) & ((1 << bits) - 1)
    panels, groups, lanes, quad = packed_shape(flat.shape, QUADS16, bits)
    each = 8 // bits
    padded = np.zeros((panels * lanes, groups * each * quad), np.int64)
    padded[: flat.shape[0], : flat.shape[1]] = flat
    apart = padded.reshape(panels, lanes, groups, each, quad)
    shared = sum(apart[:, :, :, s] << s * bits for s in range(each))
    return np.ascontiguousarray(np.asarray(shared).astype(np.uint8).swapaxes(1, 2))


def unpack_quads(quads: Array, rows: int, columns: int, code: str) -> Array:
    """The [rows, columns] codes, i8 or ui8, of quads in a format as `ui4`."""
    bits, (panels, groups, lanes, quad) = int(code.lstrip("ui")), quads.shape
    apart = split_codes(quads.view(np.uint8)[..., None], code)
    flat = apart.transpose(0, 2, 1, 4, 3).reshape(panels * lanes, groups * quad * 8 // bits)
    return flat[:rows, :columns]


def split_codes(shared: Array, code: str) -> Array:
    """The codes of bytes along the last axis, low bits first, each in a byte of its own."""
    bits = int(code.lstrip("ui"))
    apart = shared[..., None] >> np.arange(0, 8, bits, dtype=np.uint8) & ((1 << bits) - 1)
    codes = apart.reshape(*shared.shape[:-1], -1).astype(np.int64)
    if code.startswith("u"):
        return codes.astype(np.uint8)
    half = 1 << (bits - 1)
    return ((codes ^ half) - half).astype(np.int8)


def columns(op: CpuOp, y: Array, frame: Frame) -> list[Array]:
    """The columns of a product, cut into those that each result of its op has."""
    widths = [frame.shape(tensor_type(part))[-1] for part in op.results]
    return np.split(y, np.cumsum(widths)[:-1], axis=-1)
