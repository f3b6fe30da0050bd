"""Meanings of the image and sound ops of the `mllm` dialect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from mllm_compiler.dialects.mllm import (
    ConvOp,
    Coordinates,
    IntegerConvOp,
    PatchEmbedOp,
    PoolKind,
    PoolOp,
    ResizeMode,
    ResizeOp,
)
from mllm_compiler.dialects.mllm.contract import float_list
from mllm_compiler.dialects.types import tensor_type
from mllm_compiler.reference.entry import one
from mllm_compiler.reference.executor import Array, Frame, Meaning
from mllm_compiler.reference.mllm_linear import wide

Indices = NDArray[np.float64]


def windows(
    x: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    fill: float,
) -> Array:
    """[B, C, *in] -> [B, C, *out, *kernel], padded with `fill`."""
    n = len(kernel)
    amounts = [(0, 0), (0, 0), *((pads[i], pads[n + i]) for i in range(n))]
    padded = np.pad(x, amounts, constant_values=fill)
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    seen = sliding_window_view(padded, spans, axis=tuple(range(2, 2 + n)))
    steps = [slice(None)] * 2 + [slice(None, None, s) for s in strides]
    return seen[(*steps, *(slice(None, None, d) for d in dilations))]


def convolve(op: ConvOp | IntegerConvOp, x: Array, weight: Array, bias: Array | None) -> Array:
    """The convolution that `op` describes."""
    (strides, pads, dilations), groups = op.window, op.groups.value.data
    n = len(strides)
    seen = windows(x, weight.shape[2:], strides, pads, dilations, 0.0)
    seen = seen.reshape(x.shape[0], groups, x.shape[1] // groups, *seen.shape[2:])
    parts = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    axes = [2, *range(3 + n, 3 + 2 * n)]
    made = [
        np.tensordot(seen[:, g], parts[g], ([a - 1 for a in axes], list(range(1, 2 + n))))
        for g in range(groups)
    ]
    y = np.moveaxis(np.concatenate(made, -1), -1, 1)
    return y if bias is None else y + bias.reshape(-1, *[1] * n)


def _conv(op: ConvOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, weight, *sides = (wide(v) for v in operands)
    y = convolve(op, x, weight, sides[0] if sides else None)
    return np.ascontiguousarray(y).astype(operands[0].dtype, copy=False)


def _patch_embed(op: PatchEmbedOp, operands: Sequence[Array], frame: Frame) -> Array:
    pixels, weight, *sides = (wide(v) for v in operands)
    patch, (batch, channels, height, width) = op.patch.value.data, pixels.shape
    rows, columns = height // patch, width // patch
    cut = pixels[:, :, : rows * patch, : columns * patch]
    cut = cut.reshape(batch, channels, rows, patch, columns, patch)
    flat = cut.transpose(0, 2, 4, 1, 3, 5).reshape(batch, rows * columns, -1)
    y = np.matmul(flat, weight.reshape(weight.shape[0], -1).T)
    if op.bias is not None:
        y = y + sides.pop(0)
    if op.cls is not None:
        first = np.broadcast_to(sides.pop(0), (batch, 1, y.shape[2]))
        y = np.concatenate([first, y], axis=1)
    if op.position is not None:
        y = y + sides.pop(0)
    return y.astype(operands[0].dtype, copy=False)


def _pool(op: PoolOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, (kernel, strides, pads) = wide(operands[0]), op.window
    n, ones = len(kernel), [1] * len(kernel)
    inner = tuple(range(2 + n, 2 + 2 * n))
    if op.kind.data is PoolKind.MAX:
        y = windows(x, kernel, strides, pads, ones, -np.inf).max(inner)
        return y.astype(operands[0].dtype, copy=False)
    total = windows(x, kernel, strides, pads, ones, 0.0).sum(inner)
    fill = 1.0 if op.count_include_pad else 0.0
    counted = windows(np.ones_like(x[:1, :1]), kernel, strides, pads, ones, fill).sum(inner)
    return (total / counted).astype(operands[0].dtype, copy=False)


def _half_pixel(i: Indices, size: int, out: int, scale: float) -> Indices:
    return (i + 0.5) / scale - 0.5


def _align_corners(i: Indices, size: int, out: int, scale: float) -> Indices:
    return i * (size - 1) / (out - 1) if out > 1 else i * 0.0


def _asymmetric(i: Indices, size: int, out: int, scale: float) -> Indices:
    return i / scale


def _pytorch(i: Indices, size: int, out: int, scale: float) -> Indices:
    return _half_pixel(i, size, out, scale) if out > 1 else i * 0.0


COORDINATES: dict[Coordinates, Callable[[Indices, int, int, float], Indices]] = {
    Coordinates.HALF_PIXEL: _half_pixel,
    Coordinates.ALIGN_CORNERS: _align_corners,
    Coordinates.ASYMMETRIC: _asymmetric,
    Coordinates.PYTORCH_HALF_PIXEL: _pytorch,
}
"""Result index, input size, result size and scale to a coordinate of the input."""


def cubic_weight(distance: Indices, a: float) -> Indices:
    """The kernel of Keys (1981)."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


@dataclass(frozen=True)
class Grid:
    """How an axis is read at other points.

    Attributes:
        mode: What stands between the grid points.
        coordinates: Where a point of the result lies.
        cubic_coeff: The coefficient of `cubic`.
        scale: Result over input; None: the ratio of the extents.
    """

    mode: ResizeMode
    coordinates: Coordinates
    cubic_coeff: float
    scale: float | None


def resized(x: Array, axis: int, out: int, grid: Grid) -> Array:
    """X with one axis read at `out` points."""
    matrix = resize_matrix(grid, x.shape[axis], out).astype(x.dtype)
    return np.moveaxis(np.tensordot(x, matrix, ([axis], [1])), -1, axis)


def resize_matrix(grid: Grid, size: int, out: int) -> NDArray[np.float64]:
    """The [out, size] matrix that resizes one axis."""
    scale = out / size if grid.scale is None else grid.scale
    at = COORDINATES[grid.coordinates](np.arange(out, dtype=np.float64), size, out, scale)
    matrix = np.zeros((out, size))
    if grid.mode is ResizeMode.NEAREST:
        nearest = np.ceil(at - 0.5).astype(np.int64).clip(0, size - 1)
        matrix[np.arange(out), nearest] = 1.0
        return matrix
    low = np.floor(at).astype(np.int64)
    taps = (0, 1) if grid.mode is ResizeMode.LINEAR else (-1, 0, 1, 2)
    for tap in taps:
        distance = at - (low + tap)
        cubic = grid.mode is ResizeMode.CUBIC
        weight = cubic_weight(distance, grid.cubic_coeff) if cubic else 1 - np.abs(distance)
        np.add.at(matrix, (np.arange(out), (low + tap).clip(0, size - 1)), weight)
    return matrix


def _resize(op: ResizeOp, operands: Sequence[Array], frame: Frame) -> Array:
    y, shape = wide(operands[0]), frame.shape(tensor_type(op.result))
    scales = float_list(op.scales)
    for axis in range(2, y.ndim):
        scale = scales[axis - 2] if scales else None
        grid = Grid(op.mode.data, op.coordinates.data, op.cubic_coeff.value.data, scale)
        y = resized(y, axis, shape[axis], grid)
    return np.ascontiguousarray(y).astype(operands[0].dtype, copy=False)


MEANINGS: dict[str, Meaning] = dict(
    [
        one(PatchEmbedOp, _patch_embed),
        one(ConvOp, _conv),
        one(PoolOp, _pool),
        one(ResizeOp, _resize),
    ]
)
"""Op name to meaning."""
