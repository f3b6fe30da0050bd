"""Convolutions, pooling and patches as operators of TFLite, whose images are NHWC.

An image of one axis, a sound, is one of height 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import f32
from xdsl.ir import SSAValue

from mllm_compiler.dialects import mllm, tfl
from mllm_compiler.dialects.mllm import PoolKind
from mllm_compiler.dialects.tfl.vision import window_count
from mllm_compiler.dialects.types import extents
from mllm_compiler.passes.folded_weights import numbers_of
from mllm_compiler.passes.lower_to_tfl.builder import Builder

NHWC, NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


def patch_embed(op: mllm.PatchEmbedOp, b: Builder) -> SSAValue:
    """A convolution whose windows do not overlap; then the class token and the positions."""
    image, patch = b.transpose(op.pixels, NHWC), op.patch.value.data
    made = _convolve(b, image, op.weight, op.bias, (patch, patch), (1, 1), 1)
    batch, high, wide, n = extents(made)
    y = b.reshape(made, (batch, high * wide, n))
    if op.cls is not None:
        y = b.concat([b.broadcast(op.cls, (batch, 1, n)), y], 1)
    return y if op.position is None else b.add(y, op.position)


def conv(op: mllm.ConvOp, b: Builder) -> SSAValue:
    """Zeros around the image, then windows that lie inside."""
    strides, pads, dilations = op.window
    image = _padded(b, _image(b, op.x), _high(pads, 0), 0.0)
    groups = op.groups.value.data
    made = _convolve(b, image, op.weight, op.bias, _high(strides, 1), _high(dilations, 1), groups)
    return b.reshape(b.transpose(made, NCHW), extents(op.result))


def pool(op: mllm.PoolOp, b: Builder) -> SSAValue:
    """The largest, or the mean, of windows that lie inside."""
    kernel, strides, pads = op.window
    largest = op.kind.data == PoolKind.MAX
    image = _padded(b, _image(b, op.x), _high(pads, 0), -np.inf if largest else 0.0)
    (high, wide), (down, right) = _high(kernel, 1), _high(strides, 1)
    batch, rows, columns, channels = extents(image)
    dims = (
        batch,
        window_count(rows, high, down, 1, "VALID"),
        window_count(columns, wide, right, 1, "VALID"),
        channels,
    )
    made = b.call(
        tfl.MaxPool2dOp if largest else tfl.AveragePool2dOp,
        [image],
        dims,
        padding="VALID",
        stride_w=right,
        stride_h=down,
        filter_width=wide,
        filter_height=high,
    )
    return b.reshape(b.transpose(made, NCHW), extents(op.result))


def _image(b: Builder, x: SSAValue) -> SSAValue:
    """[B, C, W] or [B, C, H, W] as [B, H, W, C]."""
    dims = extents(x)
    four = dims if len(dims) == 4 else (dims[0], dims[1], 1, dims[2])
    return b.transpose(b.reshape(x, four), NHWC)


def _high(numbers: Sequence[int], missing: int) -> tuple[int, ...]:
    """Numbers of one or two axes, or of both ends of them, as those of two axes."""
    if len(numbers) == 1:
        return (missing, numbers[0])
    if len(numbers) == 2 and missing == 0:
        return (0, numbers[0], 0, numbers[1])
    return tuple(numbers)


def _padded(b: Builder, image: SSAValue, pads: Sequence[int], value: float) -> SSAValue:
    if not any(pads):
        return image
    top, left, bottom, right = pads
    batch, high, wide, channels = extents(image)
    around = b.constant(np.array([[0, 0], [top, bottom], [left, right], [0, 0]], np.int32))
    dims = (batch, high + top + bottom, wide + left + right, channels)
    return b.call(tfl.PadV2Op, [image, around, b.real(value)], dims)


def _convolve(
    b: Builder,
    image: SSAValue,
    weight: SSAValue,
    bias: SSAValue | None,
    strides: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> SSAValue:
    """A convolution with windows that lie inside, by a weight [N, C / groups, *k]."""
    dims = extents(weight)
    n, depth, high, wide = dims if len(dims) == 4 else (dims[0], dims[1], 1, dims[2])
    batch, rows, columns, channels = extents(image)
    depthwise = groups > 1 and groups == channels
    filter = b.constant(_filter(b, weight, (n, depth, high, wide), depthwise))
    common = {
        "padding": "VALID",
        "stride_w": strides[1],
        "stride_h": strides[0],
        "dilation_w_factor": dilations[1],
        "dilation_h_factor": dilations[0],
    }
    shape = (
        batch,
        window_count(rows, high, strides[0], dilations[0], "VALID"),
        window_count(columns, wide, strides[1], dilations[1], "VALID"),
        n,
    )
    if bias is None:
        bias = b.constant(np.zeros(n, np.float32))
    if depthwise:
        multiplier = n // channels
        return b.call(
            tfl.DepthwiseConv2dOp,
            [image, filter, bias],
            shape,
            f32,
            depth_multiplier=multiplier,
            **common,
        )
    return b.call(tfl.Conv2dOp, [image, filter, bias], shape, f32, **common)


def _filter(
    b: Builder, weight: SSAValue, dims: tuple[int, int, int, int], depthwise: bool
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """A weight as TFLite reads it: [N, h, w, C], or [1, h, w, N] for each channel by itself."""
    numbers = numbers_of(weight, b.store)
    assert numbers is not None
    four = numbers.reshape(dims)
    turned = four.transpose(1, 2, 3, 0) if depthwise else four.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(turned)
