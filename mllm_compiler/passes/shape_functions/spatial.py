"""Shapes of convolutions, pools and resizing: [N, C, spatial dims...]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import numpy as np
from xdsl.dialects.builtin import i32, i64

from mllm_compiler.dialects.dims import UNKNOWN, Dim
from mllm_compiler.passes.shape_functions.knowledge import (
    Dims,
    Known,
    ShapeFunction,
    Shapes,
    tensor,
)
from mllm_compiler.passes.shape_functions.layout import ints_of

if TYPE_CHECKING:
    from mllm_compiler.dialects.onnx_op import OnnxOp


def _list(op: OnnxOp, name: str, count: int, default: int) -> list[int]:
    given = op.attribute(name) if name in op.properties else None
    return list(cast("tuple[int, ...]", given)) if given is not None else [default] * count


def window_dims(op: OnnxOp, spatial: Dims, kernel: list[Dim]) -> list[Dim]:
    """How many places a window has along each spatial axis."""
    rank = len(spatial)
    strides, dilations = (_list(op, name, rank, 1) for name in ("strides", "dilations"))
    pads = _list(op, "pads", 2 * rank, 0)
    auto = op.attribute("auto_pad")
    ceil = "ceil_mode" in op.properties and op.attribute("ceil_mode")
    dims: list[Dim] = []
    for i, (extent, taps) in enumerate(zip(spatial, kernel, strict=True)):
        stride = Dim.const(strides[i])
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            dims.append(-(-extent // stride))
            continue
        padding = 0 if auto == "VALID" else pads[i] + pads[rank + i]
        room = extent + padding - ((taps - 1) * dilations[i] + 1)
        places = (-(-room // stride) if ceil else room // stride) + 1
        dims.append(_within(places, extent, pads[i], strides[i]) if ceil else places)
    return dims


def _within(places: Dim, extent: Dim, before: int, stride: int) -> Dim:
    """With `ceil_mode`, a window that would start after the data is left out."""
    n, m = places.as_int(), extent.as_int()
    if n is None or m is None:
        return places
    return Dim.const(n - 1 if (n - 1) * stride >= m + before else n)


def _kernel(op: OnnxOp, weight: Known) -> list[Dim] | None:
    if "kernel_shape" in op.properties:
        return [Dim.const(n) for n in cast("tuple[int, ...]", op.attribute("kernel_shape"))]
    return None if weight.dims is None else list(weight.dims[2:])


def conv(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """[N, C, ...] and a weight [M, C / groups, taps...] -> [N, M, ...]."""
    return [_conv(op, shapes, 0, 1)]


def conv_integer(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """The convolution of integers, exact in i32."""
    return [tensor(i32, _conv(op, shapes, 0, 1).dims)]


def qlinear_conv(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """The quantised convolution; the type is that of the result's zero point."""
    return [tensor(shapes.of(op.input(7)).element, _conv(op, shapes, 0, 3).dims)]


def _conv(op: OnnxOp, shapes: Shapes, x: int, w: int) -> Known:
    data, weight = shapes.of(op.input(x)), shapes.of(op.input(w))
    kernel = _kernel(op, weight)
    if data.dims is None or kernel is None:
        return tensor(data.element, None)
    channels = weight.dims[0] if weight.dims is not None else UNKNOWN
    return tensor(data.element, [data.dims[0], channels, *window_dims(op, data.dims[2:], kernel)])


def conv_transpose(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """[N, C, ...] and a weight [C, M / groups, taps...] -> [N, M, ...]."""
    data, weight = shapes.of(op.input(0)), shapes.of(op.input(1))
    kernel = _kernel(op, weight)
    if data.dims is None or kernel is None or weight.dims is None:
        return [tensor(data.element, None)]
    channels = weight.dims[1] * cast(int, op.attribute("group"))
    rank = len(kernel)
    if "output_shape" in op.properties:
        given = cast("tuple[int, ...]", op.attribute("output_shape"))[-rank:]
        return [tensor(data.element, [data.dims[0], channels, *given])]
    strides, dilations = (_list(op, name, rank, 1) for name in ("strides", "dilations"))
    extra, pads = _list(op, "output_padding", rank, 0), _list(op, "pads", 2 * rank, 0)
    same = op.attribute("auto_pad") in ("SAME_UPPER", "SAME_LOWER")
    dims: list[Dim] = []
    for i, (extent, taps) in enumerate(zip(data.dims[2:], kernel, strict=True)):
        if same:
            dims.append(extent * strides[i])
            continue
        reach = (taps - 1) * dilations[i] + 1
        dims.append((extent - 1) * strides[i] + extra[i] + reach - (pads[i] + pads[rank + i]))
    return [tensor(data.element, [data.dims[0], channels, *dims])]


def pool(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """A window over each spatial axis; the second result holds the indices of maxima."""
    data = shapes.of(op.input(0))
    kernel = _kernel(op, Known())
    if data.dims is None or kernel is None:
        return [tensor(data.element, None), tensor(i64, None)]
    dims = [*data.dims[:2], *window_dims(op, data.dims[2:], kernel)]
    return [tensor(data.element, dims), tensor(i64, dims)]


def global_pool(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """Each spatial dim becomes 1."""
    data = shapes.of(op.input(0))
    if data.dims is None:
        return [tensor(data.element, None)]
    return [tensor(data.element, (*data.dims[:2], *(Dim.const(1) for _ in data.dims[2:])))]


def resize(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """The given sizes, or each dim times its scale, rounded down."""
    data = shapes.of(op.input(0))
    if data.dims is None:
        return [tensor(data.element, None)]
    modern = op.schema.name == "Resize" and op.schema.since > 10
    dims = list(data.dims)
    given = ints_of(op, shapes, 99, "axes")
    axes = list(range(len(dims))) if given is None else [a % len(dims) for a in given]
    sizes = shapes.of(op.input(3)).contents if modern else None
    scales = shapes.array(op.input(2 if modern else 1))
    policy = op.attribute("keep_aspect_ratio_policy") if modern else None
    if sizes is not None and policy not in (None, "stretch"):
        sizes = _keeping_ratio([dims[a] for a in axes], sizes, at_least=policy == "not_smaller")
    for i, axis in enumerate(axes):
        if sizes is not None:
            dims[axis] = sizes[i]
        elif scales is not None and scales.size:
            dims[axis] = _scaled(dims[axis], float(scales.reshape(-1)[i]))
        else:
            dims[axis] = UNKNOWN
    return [tensor(data.element, dims)]


def _keeping_ratio(dims: list[Dim], sizes: Dims, *, at_least: bool) -> Dims:
    """All axes scaled alike, so that they reach the sizes, or stay within them."""
    numbers = [(d.as_int(), s.as_int()) for d, s in zip(dims, sizes, strict=True)]
    known = [(d, s) for d, s in numbers if d and s is not None]
    if len(known) < len(numbers):
        return tuple(UNKNOWN for _ in dims)
    scale = (max if at_least else min)(s / d for d, s in known)
    # Halves are rounded up.
    return tuple(Dim.const(int(scale * d + 0.5)) for d, _ in known)


def _scaled(extent: Dim, scale: float) -> Dim:
    if scale == 1.0:
        return extent
    n = extent.as_int()
    if n is not None:
        return Dim.const(int(np.floor(np.float32(n) * np.float32(scale))))
    if scale.is_integer():
        return extent * int(scale)
    return extent // int(1 / scale) if (1 / scale).is_integer() else UNKNOWN


FUNCTIONS: Final[dict[str, ShapeFunction]] = {
    "onnx.Conv": conv,
    "onnx.ConvInteger": conv_integer,
    "onnx.QLinearConv": qlinear_conv,
    "onnx.ConvTranspose": conv_transpose,
    "onnx.MaxPool": pool,
    "onnx.AveragePool": pool,
    "onnx.LpPool": pool,
    "onnx.GlobalAveragePool": global_pool,
    "onnx.GlobalMaxPool": global_pool,
    "onnx.GlobalLpPool": global_pool,
    "onnx.Resize": resize,
    "onnx.Upsample": resize,
}
"""Shape functions by operator."""
