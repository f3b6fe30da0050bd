"""Windows of images, and the sums over them, for the `tfl` dialect."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from mllm_compiler.dialects import tfl
from mllm_compiler.dialects.tfl.vision import Pool2dOp
from mllm_compiler.dialects.types import extents
from mllm_compiler.reference.executor import Array
from mllm_compiler.reference.mllm_linear import linear


def convolution(op: tfl.Conv2dOp, x: Array, filter: Array) -> Array:
    """Sums of windows of x [B, H, W, C] times a filter [N, h, w, C / groups]."""
    n, high, wide, depth = filter.shape
    groups = x.shape[3] // depth
    patches = _windows(op, x, (high, wide))
    rows, columns = patches.shape[1:3]
    apart = patches.reshape(*patches.shape[:4], groups, depth)
    rows_of = [
        linear(
            np.ascontiguousarray(apart[..., g, :]).reshape(len(x), rows, columns, -1),
            filter[g * n // groups : (g + 1) * n // groups].reshape(n // groups, -1),
            None,
        )
        for g in range(groups)
    ]
    return np.concatenate(rows_of, -1)


def depthwise(op: tfl.DepthwiseConv2dOp, x: Array, filter: Array) -> Array:
    """Sums of windows of each channel of x [B, H, W, C] times a filter [1, h, w, N]."""
    _, high, wide, n = filter.shape
    patches = np.repeat(_windows(op, x, (high, wide)), n // x.shape[3], axis=-1)
    return (patches * filter.reshape(1, 1, 1, high * wide, n)).sum(3)


def pooled(op: Pool2dOp, x: Array, fill: float) -> Array:
    """The windows of a pool, [B, H', W', h * w, C]; fill stands around the image."""
    return _windows(op, x, (op.filter_height.value.data, op.filter_width.value.data), fill)


def _windows(op: Any, x: Array, kernel: tuple[int, int], fill: float = 0.0) -> Array:
    """The windows of an image, [B, H', W', h * w, C]."""
    _, rows, columns, _ = extents(op.y)
    down, right = op.stride_h.value.data, op.stride_w.value.data
    dilation = [
        op.properties[name].value.data if name in op.properties else 1
        for name in ("dilation_h_factor", "dilation_w_factor")
    ]
    if op.padding.data == "SAME":
        x = _same(x, (rows, columns), kernel, (down, right), dilation, fill)
    parts = [
        x[
            :,
            i * dilation[0] : i * dilation[0] + (rows - 1) * down + 1 : down,
            j * dilation[1] : j * dilation[1] + (columns - 1) * right + 1 : right,
        ]
        for i, j in product(range(kernel[0]), range(kernel[1]))
    ]
    return np.stack(parts, axis=3)


def _same(
    x: Array,
    counts: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    fill: float,
) -> Array:
    """An image with so much around it that windows start at every stride-th element."""
    around = [(0, 0)]
    for axis in range(2):
        reach = (counts[axis] - 1) * strides[axis] + (kernel[axis] - 1) * dilation[axis] + 1
        missing = max(0, reach - x.shape[1 + axis])
        around.append((missing // 2, missing - missing // 2))
    return np.pad(x, [*around, (0, 0)], constant_values=fill)
