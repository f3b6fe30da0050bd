"""Convolution, pooling and resizing of ONNX as `mllm` ops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import SSAValue

from mllm_compiler.dialects.mllm import (
    ConvOp,
    Coordinates,
    PoolKind,
    PoolOp,
    ReduceKind,
    ReduceOp,
    ResizeMode,
    ResizeOp,
    constant_array,
)
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.dialects.types import element_of, is_float, rank_of, shape_of, tensor_type
from mllm_compiler.passes.lift_onnx.emit import Converter, Emit
from mllm_compiler.passes.lift_onnx.linear import (
    integer_attribute,
    integers_attribute,
    number_attribute,
)


def _pads(
    op: OnnxOp, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[int] | None:
    """Begins, then ends, of the padding; None where it depends on dims that are not static."""
    mode, n = op.attribute("auto_pad"), len(kernel)
    if mode in (None, "NOTSET"):
        return integers_attribute(op, "pads") or [0] * (2 * n)
    if mode == "VALID":
        return [0] * (2 * n)
    sizes = [d.as_int() for d in shape_of(op.operands[0])[2:]]
    before, after = list[int](), list[int]()
    for size, k, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        if size is None:
            return None
        out = -(-size // stride)
        total = max(0, (out - 1) * stride + dilation * (k - 1) + 1 - size)
        small, large = total // 2, total - total // 2
        before.append(small if mode == "SAME_UPPER" else large)
        after.append(large if mode == "SAME_UPPER" else small)
    return before + after


def window_of(op: OnnxOp, weight: SSAValue) -> tuple[list[int], list[int], list[int]] | None:
    """Strides, pads and dilations of a convolution; None where they depend on symbols."""
    kernel = [d.as_int() for d in shape_of(weight)[2:]]
    sizes = [k for k in kernel if k is not None]
    if not sizes or len(sizes) != len(kernel):
        return None
    strides = integers_attribute(op, "strides") or [1] * len(sizes)
    dilations = integers_attribute(op, "dilations") or [1] * len(sizes)
    pads = _pads(op, sizes, strides, dilations)
    return None if pads is None else (strides, pads, dilations)


def _conv(op: OnnxOp, emit: Emit) -> SSAValue | None:
    x, weight = op.operands[:2]
    window = window_of(op, weight)
    if window is None:
        return None
    strides, pads, dilations = window
    groups = integer_attribute(op, "group", 1)
    return emit(
        ConvOp(
            x,
            weight,
            op.input(2),
            strides=strides,
            pads=pads,
            dilations=dilations,
            groups=groups,
        )
    )


def _pool(kind: PoolKind) -> Converter:
    def convert(op: OnnxOp, emit: Emit) -> SSAValue | None:
        kernel = integers_attribute(op, "kernel_shape") or []
        ones = [1] * len(kernel)
        strides = integers_attribute(op, "strides") or ones
        plain = (integers_attribute(op, "dilations") or ones) == ones
        plain = plain and not integer_attribute(op, "ceil_mode")
        pads = _pads(op, kernel, strides, ones)
        if not plain or pads is None or not is_float(element_of(op.operands[0])):
            return None
        included = bool(integer_attribute(op, "count_include_pad"))
        return emit(
            PoolOp(
                kind,
                op.operands[0],
                kernel=kernel,
                strides=strides,
                pads=pads,
                count_include_pad=included and kind is PoolKind.AVERAGE,
            )
        )

    return convert


def _global_pool(kind: ReduceKind) -> Converter:
    def convert(op: OnnxOp, emit: Emit) -> SSAValue:
        axes = list(range(2, rank_of(op.operands[0])))
        return emit(ReduceOp(kind, op.operands[0], axes, keepdims=True))

    return convert


def _resize(op: OnnxOp, emit: Emit) -> SSAValue | None:
    x, result = op.operands[0], op.results[0]
    mode, coordinates = op.attribute("mode"), op.attribute("coordinate_transformation_mode")
    plain = mode in set(ResizeMode) and coordinates in set(Coordinates)
    plain = plain and not integer_attribute(op, "exclude_outside")
    plain = plain and not integer_attribute(op, "antialias") and op.input(1) is None
    if mode == ResizeMode.NEAREST:
        plain = plain and op.attribute("nearest_mode") == "round_prefer_floor"
    plain = plain and op.attribute("axes") is None
    plain = plain and op.attribute("keep_aspect_ratio_policy") in (None, "stretch")
    plain = plain and is_float(element_of(x)) and shape_of(x)[:2] == shape_of(result)[:2]
    scales = op.input(2)
    array = None if scales is None else constant_array(scales)
    if not plain or (scales is not None and array is None):
        return None
    factors = () if array is None else tuple(np.asarray(array, np.float64)[2:].tolist())
    return emit(
        ResizeOp(
            ResizeMode(str(mode)),
            Coordinates(str(coordinates)),
            x,
            tensor_type(result),
            scales=factors,
            cubic_coeff=number_attribute(op, "cubic_coeff_a", -0.75),
        )
    )


CONVERTERS: dict[str, Converter] = {
    "Conv": _conv,
    "MaxPool": _pool(PoolKind.MAX),
    "AveragePool": _pool(PoolKind.AVERAGE),
    "GlobalAveragePool": _global_pool(ReduceKind.MEAN),
    "GlobalMaxPool": _global_pool(ReduceKind.MAX),
    "Resize": _resize,
}
"""Operator name to converter."""
