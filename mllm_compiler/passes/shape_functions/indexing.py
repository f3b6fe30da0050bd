"""Shapes and contents of operators that pick elements by index or value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import numpy as np
from xdsl.dialects.builtin import i64
from xdsl.dialects.func import FuncOp

from mllm_compiler.dialects.dims import UNKNOWN, Dim
from mllm_compiler.passes.shape_functions.knowledge import (
    Known,
    ShapeFunction,
    Shapes,
    normal_axis,
    of_grid,
    tensor,
)

if TYPE_CHECKING:
    from mllm_compiler.dialects.onnx_op import OnnxOp


def gather(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """The axis is replaced by the dims of the indices.

    Raises:
        ValueError: A constant index is outside of the axis; in a branch, which may never run, that
            is no fault of the model.
    """
    data, indices = shapes.of(op.input(0)), shapes.of(op.input(1))
    if data.dims is None or indices.dims is None:
        return [tensor(data.element, None)]
    axis = normal_axis(cast(int, op.attribute("axis")), len(data.dims))
    grid, numbers, extent = data.grid(), shapes.array(op.input(1)), data.dims[axis].as_int()
    inside = True
    if numbers is not None and extent is not None:
        inside = bool(((numbers >= -extent) & (numbers < extent)).all())
    if not inside and isinstance(op.parent_op(), FuncOp):
        raise ValueError(f"an index of {numbers!r} is outside of axis {axis}, which has {extent}")
    if grid is not None and numbers is not None and inside and numbers.size <= 64:
        return [of_grid(data.element, np.asarray(np.take(grid, numbers, axis), object))]
    return [tensor(data.element, (*data.dims[:axis], *indices.dims, *data.dims[axis + 1 :]))]


def gather_elements(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """The dims of the indices."""
    return [tensor(shapes.of(op.input(0)).element, shapes.of(op.input(1)).dims)]


def gather_nd(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """The last dim of the indices says how many dims of the data they take."""
    data, indices = shapes.of(op.input(0)), shapes.of(op.input(1))
    depth = indices.dims[-1].as_int() if indices.dims else None
    if data.dims is None or indices.dims is None or depth is None:
        return [tensor(data.element, None)]
    batch = cast("int | None", op.attribute("batch_dims")) or 0
    return [tensor(data.element, (*indices.dims[:-1], *data.dims[batch + depth :]))]


def top_k(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """The k largest along the axis, and their indices."""
    data = shapes.of(op.input(0))
    if data.dims is None:
        return [tensor(data.element, None), tensor(i64, None)]
    axis = normal_axis(cast(int, op.attribute("axis")), len(data.dims))
    if op.input(1) is None:
        k = Dim.const(cast(int, op.attribute("k")))
    else:
        contents = shapes.of(op.input(1)).contents
        k = contents[0] if contents else UNKNOWN
    dims = [*data.dims[:axis], k, *data.dims[axis + 1 :]]
    return [tensor(data.element, dims), tensor(i64, dims)]


def one_hot(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """A new axis of extent `depth`."""
    indices, depth = shapes.of(op.input(0)), shapes.of(op.input(1))
    element = shapes.of(op.input(2)).element
    if indices.dims is None:
        return [tensor(element, None)]
    extent = depth.contents[0] if depth.contents else UNKNOWN
    axis = normal_axis(cast(int, op.attribute("axis")), len(indices.dims) + 1)
    return [tensor(element, (*indices.dims[:axis], extent, *indices.dims[axis:]))]


def non_zero(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """[rank, how many there are]."""
    rank = shapes.of(op.input(0)).rank
    return [tensor(i64, [UNKNOWN if rank is None else rank, UNKNOWN])]


def compress(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """As many along the axis as the condition holds for."""
    data = shapes.of(op.input(0))
    axis = cast("int | None", op.attribute("axis"))
    if axis is None:
        return [tensor(data.element, [UNKNOWN])]
    if data.dims is None:
        return [tensor(data.element, None)]
    dims = list(data.dims)
    dims[normal_axis(axis, len(dims))] = UNKNOWN
    return [tensor(data.element, dims)]


FUNCTIONS: Final[dict[str, ShapeFunction]] = {
    "onnx.Gather": gather,
    "onnx.GatherElements": gather_elements,
    "onnx.GatherND": gather_nd,
    "onnx.TopK": top_k,
    "onnx.OneHot": one_hot,
    "onnx.NonZero": non_zero,
    "onnx.Compress": compress,
}
"""Shape functions by operator."""
