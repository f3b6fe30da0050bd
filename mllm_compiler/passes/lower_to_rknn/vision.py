"""Convolutions, pooling and patches as the toolkit takes them: images are NCHW."""

from __future__ import annotations

from xdsl.ir import SSAValue

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.mllm import PoolKind
from mllm_compiler.dialects.types import extents
from mllm_compiler.passes.lower_to_rknn.builder import Builder


def patch_embed(op: mllm.PatchEmbedOp, b: Builder) -> SSAValue:
    """Patches as rows of a product: a convolution by steps of a patch would be split and slow."""
    patch, (batch, channels, high, wide) = op.patch.value.data, extents(op.pixels)
    rows, columns, inside = high // patch, wide // patch, patch * patch
    n = extents(op.weight)[0]
    image = b.slice(b.slice(op.pixels, 2, 0, rows * patch), 3, 0, columns * patch)
    # Two turns of four axes: the chip knows no others.
    tiles = b.reshape(image, (batch * channels * rows, patch, columns, patch))
    tiles = b.reshape(b.transpose(tiles, (0, 2, 1, 3)), (batch, channels, rows * columns, inside))
    patches = b.reshape(
        b.transpose(tiles, (0, 2, 1, 3)), (batch, rows * columns, channels * inside)
    )
    y = b.linear(patches, b.reshape(op.weight, (n, channels * inside)), op.bias)
    if op.cls is not None:
        cls = op.cls
        if batch > 1:
            cls = b.call("Expand", [cls, b.whole(batch, 1, n)], (batch, 1, n))
        y = b.concat([cls, y], 1)
    return y if op.position is None else b.add(y, op.position)


def conv(op: mllm.ConvOp, b: Builder) -> SSAValue:
    """A convolution; that of a sound is one over an image of height 1."""
    strides, pads, dilations = op.window
    x, weight, dims = op.x, op.weight, extents(op.result)
    if len(dims) == 3:
        x, weight, dims = (_high(b, x), _high(b, weight), (dims[0], dims[1], 1, dims[2]))
        strides, dilations = (1, *strides), (1, *dilations)
        pads = (0, pads[0], 0, pads[1])
    y = b.call(
        "Conv",
        [x, weight, op.bias],
        dims,
        strides=strides,
        pads=pads,
        dilations=dilations,
        group=op.groups.value.data,
        kernel_shape=extents(weight)[2:],
    )
    return b.reshape(y, extents(op.result))


def pool(op: mllm.PoolOp, b: Builder) -> SSAValue:
    """The largest, or the mean, of windows; those of a sound are of height 1."""
    kernel, strides, pads = op.window
    x, dims = op.x, extents(op.result)
    if len(dims) == 3:
        x, dims = _high(b, x), (dims[0], dims[1], 1, dims[2])
        kernel, strides, pads = (1, *kernel), (1, *strides), (0, pads[0], 0, pads[1])
    common = {"kernel_shape": kernel, "strides": strides, "pads": pads}
    if op.kind.data == PoolKind.MAX:
        y = b.call("MaxPool", [x], dims, **common)
    else:
        counted = int(bool(op.count_include_pad))
        y = b.call("AveragePool", [x], dims, count_include_pad=counted, **common)
    return b.reshape(y, extents(op.result))


def _high(b: Builder, x: SSAValue) -> SSAValue:
    """[B, C, W] as [B, C, 1, W]."""
    batch, channels, wide = extents(x)
    return b.reshape(x, (batch, channels, 1, wide))
