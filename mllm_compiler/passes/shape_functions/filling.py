"""Shapes and contents of operators that repeat, pad or make elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import numpy as np
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr
from xdsl.ir import SSAValue

from mllm_compiler.dialects.dims import UNKNOWN, Dim
from mllm_compiler.dialects.onnx_attributes import array_of_dense
from mllm_compiler.dialects.onnx_types import element_of_numpy
from mllm_compiler.passes.shape_functions.knowledge import (
    LARGEST_CONTENTS,
    Known,
    ShapeFunction,
    Shapes,
    normal_axis,
    of_grid,
    tensor,
)
from mllm_compiler.passes.shape_functions.layout import ints_of, vector_of

if TYPE_CHECKING:
    from mllm_compiler.dialects.onnx_op import OnnxOp


def pad(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """Each dim plus what is added before and after it."""
    data = shapes.of(op.input(0))
    key = "pads" if "pads" in op.schema.attributes else "paddings"
    if op.input(1) is None:
        given = op.attribute(key)
        pads = None if given is None else [Dim.const(n) for n in cast("tuple[int, ...]", given)]
    else:
        pads = vector_of(shapes, op.input(1))
    axes = ints_of(op, shapes, 3, "axes")
    unknown_axes = axes is None and op.input(3) is not None
    if data.dims is None or pads is None or unknown_axes:
        return [tensor(data.element, data.dims and [UNKNOWN] * len(data.dims))]
    dims = list(data.dims)
    at = range(len(dims)) if axes is None else [normal_axis(a, len(dims)) for a in axes]
    half = len(pads) // 2
    for i, axis in enumerate(at):
        dims[axis] = dims[axis] + pads[i] + pads[half + i]
    return [tensor(data.element, dims)]


def tile(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """Each dim times its repeats."""
    data, repeats = shapes.of(op.input(0)), vector_of(shapes, op.input(1))
    if data.dims is None or repeats is None:
        return [tensor(data.element, None)]
    return [tensor(data.element, [d * r for d, r in zip(data.dims, repeats, strict=True)])]


def range_(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """From start to limit in steps of delta."""
    first = shapes.of(op.input(0))
    start, limit, delta = (_scalar(shapes, op.input(i)) for i in range(3))
    if start is None or limit is None or delta is None or delta.as_int() in (None, 0):
        return [tensor(first.element, [UNKNOWN])]
    step = delta.as_int() or 1
    length = (limit - start) * (1 if step > 0 else -1)
    extent = -(-length // Dim.const(abs(step)))
    n = extent.as_int()
    if n is None:
        return [tensor(first.element, [extent])]
    n = max(n, 0)
    if n > LARGEST_CONTENTS:
        return [tensor(first.element, [n])]
    whole = [start + delta * i for i in range(n)]
    return [Known(first.element, (Dim.const(n),), tuple(whole))]


def _scalar(shapes: Shapes, value: SSAValue | None) -> Dim | None:
    known = shapes.of(value)
    if known.contents is not None and len(known.contents) == 1:
        return None if known.contents[0].unknown else known.contents[0]
    array = shapes.array(value)
    if array is None or array.size != 1 or array.dtype.kind not in "iuf":
        return None
    number = float(array.reshape(-1)[0])
    return Dim.const(int(number)) if number.is_integer() else None


def constant_of_shape(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """One value everywhere; a float zero unless `value` says otherwise."""
    dims = vector_of(shapes, op.input(0))
    value = op.properties.get("value")
    array = (
        np.zeros(1, np.float32)
        if value is None
        else array_of_dense(cast(DenseIntOrFPElementsAttr, value))
    )
    result = tensor(element_of_numpy(array.dtype), dims)
    if result.shape is None or array.dtype.kind not in "iub":
        return [result]
    if np.prod(result.shape, dtype=object) > LARGEST_CONTENTS:
        return [result]
    grid = np.full(result.shape, None, object)
    grid[...] = Dim.const(int(array.reshape(-1)[0]))
    return [of_grid(result.element, grid)]


FUNCTIONS: Final[dict[str, ShapeFunction]] = {
    "onnx.Tile": tile,
    "onnx.Pad": pad,
    "onnx.Range": range_,
    "onnx.ConstantOfShape": constant_of_shape,
}
"""Shape functions by operator."""
