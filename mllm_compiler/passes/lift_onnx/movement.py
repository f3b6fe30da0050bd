"""Operators of ONNX that move elements or make them from sizes, as `mllm` ops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import SSAValue

from mllm_compiler.dialects.dims import Dim, dims_of
from mllm_compiler.dialects.mllm import (
    BroadcastOp,
    CastOp,
    ConcatOp,
    IotaOp,
    PadOp,
    SliceOp,
    TransposeOp,
    constant_array,
    constant_scalar,
)
from mllm_compiler.dialects.mllm.contract import normal_axis
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.dialects.types import element_of, is_integer, rank_of, shape_of, tensor_type
from mllm_compiler.passes.lift_onnx.emit import Converter, Emit, contents, static
from mllm_compiler.passes.lift_onnx.linear import (
    integer_attribute,
    integers_attribute,
    number_attribute,
)

FAR = 1 << 31
"""A bound of a slice from here on means "to the end"."""


def _reshape(op: OnnxOp, emit: Emit) -> SSAValue | None:
    dims = emit.result_dims
    if sum(d.unknown for d in dims) > 1:
        return None
    return emit.reshape(op.operands[0], dims)


def _transpose(op: OnnxOp, emit: Emit) -> SSAValue:
    x = op.operands[0]
    perm = integers_attribute(op, "perm")
    return emit(TransposeOp(x, list(reversed(range(rank_of(x)))) if perm is None else perm))


def _concat(op: OnnxOp, emit: Emit) -> SSAValue:
    return emit(ConcatOp(op.operands, integer_attribute(op, "axis")))


def _split(op: OnnxOp, emit: Emit) -> Sequence[SSAValue] | None:
    x, axis = op.operands[0], normal_axis(integer_attribute(op, "axis"), rank_of(op.operands[0]))
    made, at = list[SSAValue](), Dim()
    for result in op.results:
        extents = list(shape_of(x))
        extents[axis] = dims_of(tensor_type(result))[axis]
        if any(d.unknown for d in extents):
            return None
        starts = [at if a == axis else Dim() for a in range(rank_of(x))]
        made.append(emit(SliceOp(x, starts, extents)))
        at = at + extents[axis]
    return made


def _slice(op: OnnxOp, emit: Emit) -> SSAValue | None:
    x, dims = op.operands[0], shape_of(op.operands[0])
    bounds = _bounds(op)
    if bounds is None:
        return None
    starts, steps = [Dim()] * len(dims), [1] * len(dims)
    extents = list(dims)
    for axis, start, step in bounds:
        extents[axis] = emit.result_dims[axis]
        first = _first(start, step, dims[axis], extents[axis])
        if first is None:
            return None
        starts[axis], steps[axis] = first, step
    if any(d.unknown for d in extents):
        return None
    return emit(SliceOp(x, starts, extents, steps))


def _bounds(op: OnnxOp) -> list[tuple[int, Dim, int]] | None:
    """Axis, start and step of each axis that a slice cuts."""
    rank = rank_of(op.operands[0])
    attribute = integers_attribute(op, "starts")
    starts = contents(op.input(1))
    if attribute is not None:
        starts = tuple(Dim.const(s) for s in attribute)
    if starts is None:
        return None
    axes = integers_attribute(op, "axes") or static(op.input(3)) or list(range(len(starts)))
    steps = static(op.input(4)) if op.input(4) is not None else [1] * len(starts)
    if (
        steps is None
        or len(axes) != len(starts)
        or (op.input(3) is not None and static(op.input(3)) is None)
    ):
        return None
    return [(normal_axis(a, rank), s, t) for a, s, t in zip(axes, starts, steps, strict=True)]


def _first(start: Dim, step: int, dim: Dim, extent: Dim) -> Dim | None:
    """The first element that a slice takes, counted from the front; None where that is unknown."""
    known, size = start.as_int(), dim.as_int()
    if extent.as_int() == 0:
        return Dim()
    if known is None:
        return start if step > 0 and not start.unknown else None
    last = dim - 1
    if step < 0 and known >= 0 and (known >= FAR or (size is not None and known >= size)):
        return last
    if known >= 0:
        return start
    if size is not None:
        return Dim.const(max(size + known, 0))
    whole = step == 1 and (extent == dim or extent.as_int() == -known)
    if whole:
        return Dim() if extent == dim else dim + known
    return dim + known if step < 0 and not dim.unknown else None


def _expand(op: OnnxOp, emit: Emit) -> SSAValue | None:
    dims = emit.result_dims
    if any(d.unknown for d in dims):
        return None
    x = op.operands[0]
    return x if shape_of(x) == dims else emit(BroadcastOp(x, dims))


def _tile(op: OnnxOp, emit: Emit) -> SSAValue | None:
    x, repeats = op.operands[0], contents(op.input(1))
    if repeats is None or len(repeats) != rank_of(x):
        return None
    pairs = list(zip(repeats, shape_of(x), strict=True))
    apart = emit.reshape(x, [d for _, dim in pairs for d in (Dim.const(1), dim)])
    wide = emit(BroadcastOp(apart, [d for pair in pairs for d in pair]))
    return emit.reshape(wide, [r * d for r, d in pairs])


def _range(op: OnnxOp, emit: Emit) -> SSAValue | None:
    start, step = contents(op.operands[0]), static(op.operands[2])
    count = emit.result_dims[0]
    element = element_of(op.results[0])
    if start is None or not step or count.unknown or not is_integer(element):
        return None
    made = emit(IotaOp(count, start[0], step[0]))
    if element_of(made) == element:
        return made
    return emit(CastOp(made, element))


def _constant_of_shape(op: OnnxOp, emit: Emit) -> SSAValue | None:
    dims, element = emit.result_dims, element_of(op.results[0])
    if any(d.unknown for d in dims):
        return None
    given = op.attribute("value")
    number = given.reshape(-1)[0].item() if isinstance(given, np.ndarray) else 0
    scalar = emit.scalar(number, element)
    return emit(BroadcastOp(scalar, dims)) if dims else scalar


def _pad(op: OnnxOp, emit: Emit) -> SSAValue | None:
    x, rank = op.operands[0], rank_of(op.operands[0])
    pads = integers_attribute(op, "pads") or static(op.input(1))
    axes = static(op.input(3)) if op.input(3) is not None else list(range(rank))
    value = op.input(2)
    number = number_attribute(op, "value", 0.0) if value is None else constant_scalar(value)
    if value is not None and (array := constant_array(value)) is not None:
        number = float(array.reshape(-1)[0])
    if op.attribute("mode") not in (None, "constant") or not pads or not axes or number is None:
        return None
    before, after = [0] * rank, [0] * rank
    for at, axis in enumerate(normal_axis(a, rank) for a in axes):
        before[axis], after[axis] = pads[at], pads[at + len(axes)]
    return emit(PadOp(x, before, after, number))


CONVERTERS: dict[str, Converter] = {
    "Reshape": _reshape,
    "Flatten": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
    "Transpose": _transpose,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Expand": _expand,
    "Tile": _tile,
    "Range": _range,
    "ConstantOfShape": _constant_of_shape,
    "Pad": _pad,
}
"""Operator name to converter."""
