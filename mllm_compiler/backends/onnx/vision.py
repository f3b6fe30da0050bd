"""Images and sound as nodes of the standard."""

from __future__ import annotations

from typing import Final

import numpy as np

from mllm_compiler.backends.onnx.builder import Builder, Value
from mllm_compiler.backends.onnx.entry import Inputs, one
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import (
    ConvOp,
    PatchEmbedOp,
    PoolKind,
    PoolOp,
    ResizeMode,
    ResizeOp,
)
from mllm_compiler.dialects.mllm.contract import float_list
from mllm_compiler.dialects.types import shape_of

POOL: Final = {PoolKind.MAX: "MaxPool", PoolKind.AVERAGE: "AveragePool"}


def _patch_embed(op: PatchEmbedOp, b: Builder, inputs: Inputs) -> Value:
    pixels, weight, *rest = inputs
    bias = rest.pop(0) if op.bias is not None else None
    cls = rest.pop(0) if op.cls is not None else None
    position = rest.pop(0) if op.position is not None else None
    patch = op.patch.value.data
    made = b.node("Conv", pixels, weight, bias, strides=[patch, patch])
    batch, tokens, width = shape_of(op.result)
    patches = tokens - (0 if op.cls is None else 1)
    rows, columns = (d // patch for d in shape_of(op.pixels)[2:])
    flat = b.reshape(made, (batch, width, rows, columns), (batch, width, patches))
    y = b.node("Transpose", flat, perm=[0, 2, 1])
    if cls is not None:
        one = Dim.const(1)
        first = b.expand(cls, (one, one, width), (batch, one, width))
        y = b.node("Concat", first, y, axis=1)
    return y if position is None else b.node("Add", y, position)


def _conv(op: ConvOp, b: Builder, inputs: Inputs) -> Value:
    strides, pads, dilations = op.window
    return b.node(
        "Conv", *inputs, strides=strides, pads=pads, dilations=dilations, group=op.groups.value.data
    )


def _pool(op: PoolOp, b: Builder, inputs: Inputs) -> Value:
    (kernel, strides, pads), kind = op.window, op.kind.data
    counted = {"count_include_pad": int(bool(op.count_include_pad))}
    return b.node(
        POOL[kind],
        *inputs,
        kernel_shape=kernel,
        strides=strides,
        pads=pads,
        **(counted if kind is PoolKind.AVERAGE else {}),
    )


def _resize(op: ResizeOp, b: Builder, inputs: Inputs) -> Value:
    scales = float_list(op.scales)
    given = b.constant(np.array([1, 1, *scales], np.float32)) if scales else None
    sizes = None if scales else b.dims(shape_of(op.result))
    mode = op.mode.data
    extra = {"cubic_coeff_a": op.cubic_coeff.value.data} if mode is ResizeMode.CUBIC else {}
    return b.node(
        "Resize",
        *inputs,
        None,
        given,
        sizes,
        mode=str(mode),
        coordinate_transformation_mode=str(op.coordinates.data),
        nearest_mode="round_prefer_floor",
        **extra,
    )


EXPORTERS = dict(
    [
        one(PatchEmbedOp, _patch_embed),
        one(ConvOp, _conv),
        one(PoolOp, _pool),
        one(ResizeOp, _resize),
    ]
)
"""Op class to exporter."""
