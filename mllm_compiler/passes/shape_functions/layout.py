"""Shapes and contents of operators that move elements: reshape, slice, concatenate and the like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

import numpy as np
from xdsl.dialects.builtin import i64
from xdsl.ir import SSAValue

from mllm_compiler.dialects.dims import UNKNOWN, Dim
from mllm_compiler.passes.shape_functions.knowledge import (
    LARGEST_CONTENTS,
    Dims,
    Known,
    ShapeFunction,
    Shapes,
    broadcast,
    is_nonnegative,
    normal_axis,
    of_grid,
    product,
    smaller,
    tensor,
    vector,
)

if TYPE_CHECKING:
    from mllm_compiler.dialects.onnx_op import OnnxOp

_FAR: Final = 1 << 31
"""An end from here on means `to the end`."""


def ints_of(op: OnnxOp, shapes: Shapes, position: int, attribute: str) -> list[int] | None:
    """Integers that are an operand in newer opsets and an attribute in older ones."""
    value = op.input(position)
    if value is not None:
        return shapes.ints(value)
    given = op.attribute(attribute) if attribute in op.schema.attributes else None
    return None if given is None else [int(n) for n in cast("tuple[int, ...]", given)]


def is_given(op: OnnxOp, position: int, attribute: str) -> bool:
    """Whether an operand, or the attribute that it was in older opsets, is there."""
    return op.input(position) is not None or attribute in op.properties


def shape_of(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """The dims of the operand, from `start` to `end`."""
    dims = shapes.of(op.input(0)).dims
    if dims is None:
        return [tensor(i64, [UNKNOWN])]
    start, end = (cast("int | None", op.attribute(n)) for n in ("start", "end"))
    return [vector(dims[start:end])]


def size_of(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """The number of elements."""
    dims = shapes.of(op.input(0)).dims
    return [Known(i64, (), None if dims is None else (product(dims),))]


def reshape(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """The second operand's contents, with 0 (copied) and -1 (inferred) resolved."""
    data = shapes.of(op.input(0))
    if op.input(1) is None:
        given = ints_of(op, shapes, 1, "shape") or []
        target: Sequence[Dim] | None = [Dim.const(n) for n in given]
    else:
        target = vector_of(shapes, op.input(1))
    if target is None:
        return [tensor(data.element, None)]
    dims = list(target)
    if not ("allowzero" in op.properties and op.attribute("allowzero")) and data.dims is not None:
        dims = [
            data.dims[i] if d == Dim() and i < len(data.dims) else d for i, d in enumerate(dims)
        ]
    open_at = [i for i, d in enumerate(dims) if d.as_int() == -1 or d.unknown]
    if len(open_at) == 1:
        rest = product(d for i, d in enumerate(dims) if i != open_at[0])
        dims[open_at[0]] = _rest_of(data.dims, rest)
    result = tensor(data.element, [UNKNOWN if d.as_int() == -1 else d for d in dims])
    return [_with_contents(result, data)]


def _rest_of(dims: Dims | None, rest: Dim) -> Dim:
    if dims is None or rest.as_int() == 0:
        return UNKNOWN
    return product(dims) // rest


def vector_of(shapes: Shapes, value: SSAValue | None) -> list[Dim] | None:
    """The contents of a one-dimensional tensor; all unknown where only its length is known."""
    known = shapes.of(value)
    if known.contents is not None:
        return list(known.contents)
    if known.shape is None or len(known.shape) != 1 or known.shape[0] > LARGEST_CONTENTS:
        return None
    return [UNKNOWN] * known.shape[0]


def _with_contents(result: Known, data: Known) -> Known:
    """The contents of the data, where only the shape changes."""
    if data.contents is None or result.shape is None:
        return result
    return Known(result.element, result.dims, data.contents)


def flatten(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """Two dims: those before the axis, and the rest."""
    data = shapes.of(op.input(0))
    if data.dims is None:
        return [tensor(data.element, [UNKNOWN, UNKNOWN])]
    axis = normal_axis(cast(int, op.attribute("axis")), len(data.dims))
    dims = [product(data.dims[:axis]), product(data.dims[axis:])]
    return [_with_contents(tensor(data.element, dims), data)]


def squeeze(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """The axes are left out; without axes, those of extent 1."""
    data = shapes.of(op.input(0))
    axes = ints_of(op, shapes, 1, "axes")
    if data.dims is None or (axes is None and is_given(op, 1, "axes")):
        return [tensor(data.element, None)]
    if axes is None:
        if data.shape is None:
            return [tensor(data.element, None)]
        axes = [i for i, n in enumerate(data.shape) if n == 1]
    gone = {normal_axis(a, len(data.dims)) for a in axes}
    kept = [d for i, d in enumerate(data.dims) if i not in gone]
    return [_with_contents(tensor(data.element, kept), data)]


def unsqueeze(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """Axes of extent 1 are put in, counted in the result."""
    data = shapes.of(op.input(0))
    axes = ints_of(op, shapes, 1, "axes")
    if data.dims is None or axes is None:
        return [tensor(data.element, None)]
    rank = len(data.dims) + len(axes)
    at = {normal_axis(a, rank) for a in axes}
    rest = iter(data.dims)
    dims = [Dim.const(1) if i in at else next(rest, UNKNOWN) for i in range(rank)]
    return [_with_contents(tensor(data.element, dims), data)]


def transpose(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """The dims in the order of `perm`."""
    data = shapes.of(op.input(0))
    if data.dims is None:
        return [tensor(data.element, None)]
    perm = cast("tuple[int, ...] | None", op.attribute("perm"))
    order = tuple(reversed(range(len(data.dims)))) if perm is None else perm
    grid = data.grid()
    if grid is not None:
        return [of_grid(data.element, grid.transpose(order))]
    return [tensor(data.element, [data.dims[i] for i in order])]


def expand(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """Broadcast to the contents of the second operand."""
    data, target = shapes.of(op.input(0)), vector_of(shapes, op.input(1))
    if target is None or data.dims is None:
        return [tensor(data.element, None)]
    dims = broadcast(shapes, op, [data.dims, tuple(target)])
    result = tensor(data.element, dims)
    grid = data.grid()
    if grid is None or result.shape is None:
        return [result]
    return [of_grid(data.element, np.broadcast_to(grid, result.shape))]


def concat(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """The sum along the axis; the other dims are equal."""
    parts = [shapes.of(v) for v in op.inputs]
    element = parts[0].element
    ranked = [p.dims for p in parts if p.dims is not None]
    if not ranked:
        return [tensor(element, None)]
    axis = normal_axis(cast(int, op.attribute("axis")), len(ranked[0]))
    grids = [g for p in parts if (g := p.grid()) is not None]
    if len(grids) == len(parts):
        return [of_grid(element, np.concatenate(grids, axis=axis))]
    if len(ranked[0]) == 1 and axis == 0 and all(p.shape is not None for p in parts):
        whole = [d for v in op.inputs for d in vector_of(shapes, v) or ()]
        return [Known(element, *_dims_and_contents(whole))]
    return [tensor(element, _joined(op, shapes, parts))]


def concat_codes(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """The same of codes, which a scale and a zero point follow each; those of the result lead."""
    parts = [shapes.of(v) for v in op.inputs[2::3]]
    return [tensor(parts[0].element, _joined(op, shapes, parts))]


def _joined(op: OnnxOp, shapes: Shapes, parts: Sequence[Known]) -> list[Dim] | None:
    ranked = [p.dims for p in parts if p.dims is not None]
    if not ranked:
        return None
    axis = normal_axis(cast(int, op.attribute("axis")), len(ranked[0]))
    dims = list(ranked[0])
    for other in ranked[1:]:
        for i, dim in enumerate(other):
            dims[i] = dims[i] + dim if i == axis else shapes.equate(dims[i], dim, op)
    if len(ranked) < len(parts):
        dims[axis] = UNKNOWN
    return dims


def _dims_and_contents(whole: list[Dim]) -> tuple[Dims, Dims | None]:
    known = vector(whole)
    contents = None if all(d.unknown for d in whole) else known.contents
    return known.dims or (), contents


def split(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """Parts along an axis, of the given sizes or equal."""
    data, count = shapes.of(op.input(0)), len(op.outputs)
    if data.dims is None:
        return [tensor(data.element, None)] * count
    axis = normal_axis(cast(int, op.attribute("axis")), len(data.dims))
    sizes = ints_of(op, shapes, 1, "split")
    given = is_given(op, 1, "split")
    if sizes is not None:
        extents = [Dim.const(n) for n in sizes]
    elif given:
        extents = [UNKNOWN] * count
    else:
        extents = _equal_parts(data.dims[axis], count)
    before, after = data.dims[:axis], data.dims[axis + 1 :]
    return [tensor(data.element, (*before, extent, *after)) for extent in extents]


def _equal_parts(whole: Dim, count: int) -> list[Dim]:
    n = whole.as_int()
    if n is None or n % count == 0:
        return [whole // Dim.const(count)] * count
    each = -(-n // count)
    return [Dim.const(max(0, min(each, n - i * each))) for i in range(count)]


def slice_(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """Extents from starts, ends and steps; contents too where all of them are numbers."""
    data = shapes.of(op.input(0))
    bounds = _slice_bounds(op, shapes)
    if data.dims is None or bounds is None:
        return [tensor(data.element, data.dims and [UNKNOWN] * len(data.dims))]
    dims = list(data.dims)
    cut = [slice(None)] * len(dims)
    exact = True
    for axis, start, end, step in bounds:
        at = normal_axis(axis, len(dims))
        dims[at] = slice_extent(dims[at], start, end, step)
        m, n = start.as_int(), end.as_int()
        if m is None or n is None:
            exact = False
        else:
            cut[at] = slice(m, n if n > -_FAR or step > 0 else None, step)
    grid = data.grid()
    if grid is not None and exact:
        return [of_grid(data.element, grid[tuple(cut)])]
    return [tensor(data.element, dims)]


def _slice_bounds(op: OnnxOp, shapes: Shapes) -> list[tuple[int, Dim, Dim, int]] | None:
    """Axis, start, end and step of each sliced axis; None where one of the axes is not known."""
    if "starts" in op.properties:
        starts, ends = (
            [Dim.const(n) for n in cast("tuple[int, ...]", op.attribute(k))]
            for k in ("starts", "ends")
        )
    else:
        starts, ends = (vector_of(shapes, op.input(i)) for i in (1, 2))
    if starts is None or ends is None:
        return None
    axes, steps = ints_of(op, shapes, 3, "axes"), ints_of(op, shapes, 4, "steps")
    if (axes is None and is_given(op, 3, "axes")) or (steps is None and op.input(4) is not None):
        return None
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    return list(zip(axes, starts, ends, steps, strict=True))


def slice_extent(extent: Dim, start: Dim, end: Dim, step: int) -> Dim:
    """How many elements `start:end:step` takes of `extent`."""
    n, m, stop = extent.as_int(), start.as_int(), end.as_int()
    if n is not None and m is not None and stop is not None:
        last = None if step < 0 and stop <= -_FAR else stop
        return Dim.const(len(range(n)[m:last:step]))
    if start.unknown or end.unknown or step == 0:
        return UNKNOWN
    if step < 0:
        whole = (m == -1 or (m is not None and m >= _FAR)) and stop is not None and stop <= -_FAR
        return -(-extent // Dim.const(-step)) if whole else UNKNOWN
    length = _position(extent, end) - _position(extent, start)
    if (length.as_int() is not None and length.as_int()) or is_nonnegative(length) or step == 1:
        return length if step == 1 else -(-length // Dim.const(step))
    return UNKNOWN


def _position(extent: Dim, at: Dim) -> Dim:
    """A slice bound counted from the front, within the extent.

    A bound that is computed from shapes is taken to lie within: models slice what is there.
    """
    n = at.as_int()
    if n is None:
        return at if is_nonnegative(at) or not is_nonnegative(-at) else extent + at
    if n < 0:
        return extent + at
    return extent if n >= _FAR else smaller(at, extent)


def depth_to_space(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """[N, C, H, W] -> [N, C / b b, H b, W b]."""
    data, block = shapes.of(op.input(0)), Dim.const(cast(int, op.attribute("blocksize")))
    if data.dims is None:
        return [tensor(data.element, None)]
    n, c, h, w = data.dims
    return [tensor(data.element, [n, c // (block * block), h * block, w * block])]


def space_to_depth(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """[N, C, H, W] -> [N, C b b, H / b, W / b]."""
    data, block = shapes.of(op.input(0)), Dim.const(cast(int, op.attribute("blocksize")))
    if data.dims is None:
        return [tensor(data.element, None)]
    n, c, h, w = data.dims
    return [tensor(data.element, [n, c * block * block, h // block, w // block])]


FUNCTIONS: Final[dict[str, ShapeFunction]] = {
    "onnx.Shape": shape_of,
    "onnx.Size": size_of,
    "onnx.Reshape": reshape,
    "onnx.Flatten": flatten,
    "onnx.Squeeze": squeeze,
    "onnx.Unsqueeze": unsqueeze,
    "onnx.Transpose": transpose,
    "onnx.Expand": expand,
    "onnx.Concat": concat,
    "onnx.microsoft.QLinearConcat": concat_codes,
    "onnx.Split": split,
    "onnx.Slice": slice_,
    "onnx.DepthToSpace": depth_to_space,
    "onnx.SpaceToDepth": space_to_depth,
}
"""Shape functions by operator."""
