"""Convolutions, pooling and patches as operators of QNN, whose images are NHWC.

An image of one axis, a sound, is one of height 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import SSAValue

from mllm_compiler.dialects import mllm, qnn
from mllm_compiler.dialects.mllm import PoolKind
from mllm_compiler.dialects.qnn.vision import window_counts
from mllm_compiler.dialects.types import extents
from mllm_compiler.passes.folded_weights import numbers_of
from mllm_compiler.passes.lower_to_qnn.builder import Builder

NHWC, NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


def patch_embed(op: mllm.PatchEmbedOp, b: Builder) -> SSAValue:
    """A convolution whose windows do not overlap; then the class token and the positions."""
    image, patch = b.transpose(op.pixels, NHWC), op.patch.value.data
    made = _convolve(b, image, op.weight, op.bias, (patch, patch), (0,) * 4, (1, 1), 1)
    batch, high, wide, n = extents(made)
    y = b.reshape(made, (batch, high * wide, n))
    if op.cls is not None:
        y = b.concat([b.tile(op.cls, (batch, 1, n)), y], 1)
    return y if op.position is None else b.add(y, op.position)


def conv(op: mllm.ConvOp, b: Builder) -> SSAValue:
    """Windows of the image with zeros around."""
    strides, pads, dilations = op.window
    window = (_both(strides, 1), _around(pads), _both(dilations, 1))
    made = _convolve(b, _image(b, op.x), op.weight, op.bias, *window, op.groups.value.data)
    return b.reshape(b.transpose(made, NCHW), extents(op.result))


def pool(op: mllm.PoolOp, b: Builder) -> SSAValue:
    """The largest, or the mean, of windows of the image."""
    kernel, strides, pads = op.window
    image = _image(b, op.x)
    window = (_both(kernel, 1), _both(strides, 1), _around(pads))
    batch, *sizes, channels = extents(image)
    dims = (batch, *window_counts(sizes, *window), channels)
    names = dict(zip(("filter_size", "stride", "pad_amount"), window, strict=True))
    if op.kind.data == PoolKind.MAX:
        made = b.call(qnn.PoolMax2dOp, [image], dims, **names)
    else:
        counted = bool(op.count_include_pad)
        made = b.call(qnn.PoolAvg2dOp, [image], dims, **names, count_pad_for_edges=counted)
    return b.reshape(b.transpose(made, NCHW), extents(op.result))


def _image(b: Builder, x: SSAValue) -> SSAValue:
    """[B, C, W] or [B, C, H, W] as [B, H, W, C]."""
    dims = extents(x)
    four = dims if len(dims) == 4 else (dims[0], dims[1], 1, dims[2])
    return b.transpose(b.reshape(x, four), NHWC)


def _both(numbers: Sequence[int], missing: int) -> tuple[int, int]:
    """Numbers of one or two axes as those of two."""
    return (missing, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])


def _around(pads: Sequence[int]) -> tuple[int, ...]:
    """All begins, then all ends, as begin and end of height, then of width."""
    if len(pads) == 2:
        return (0, 0, pads[0], pads[1])
    return (pads[0], pads[2], pads[1], pads[3])


def _convolve(
    b: Builder,
    image: SSAValue,
    weight: SSAValue,
    bias: SSAValue | None,
    stride: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> SSAValue:
    """A convolution by a weight [N, C / groups, *k]."""
    dims = extents(weight)
    n, depth, high, wide = dims if len(dims) == 4 else (dims[0], dims[1], 1, dims[2])
    numbers = numbers_of(weight, b.store)
    assert numbers is not None
    turned = np.ascontiguousarray(numbers.reshape(n, depth, high, wide).transpose(2, 3, 1, 0))
    batch, *sizes, channels = extents(image)
    shape = (batch, *window_counts(sizes, (high, wide), stride, pads, dilation), n)
    window = {"stride": stride, "pad_amount": pads, "dilation": dilation}
    arguments = [image, b.weight(turned, weight), bias]
    if groups == channels == n and groups > 1:
        return b.call(qnn.DepthWiseConv2dOp, arguments, shape, **window)
    return b.call(qnn.Conv2dOp, arguments, shape, **window, group=groups)
