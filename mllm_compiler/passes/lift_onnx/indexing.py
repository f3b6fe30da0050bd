"""Operators of ONNX that pick elements by index or by value, as `mllm` ops."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects.builtin import i32, i64
from xdsl.ir import SSAValue

from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import (
    BinaryKind,
    CompareKind,
    CompareOp,
    ConcatOp,
    EmbeddingOp,
    GatherOp,
    IotaOp,
    SelectOp,
    SliceOp,
    TopKOp,
    constant_array,
)
from mllm_compiler.dialects.mllm.contract import normal_axis
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.dialects.types import element_of, is_float, rank_of, shape_of
from mllm_compiler.passes.lift_onnx.emit import Converter, Emit, contents, static
from mllm_compiler.passes.lift_onnx.linear import integer_attribute
from mllm_compiler.passes.matching import made_by, peel


def _gather(op: OnnxOp, emit: Emit) -> SSAValue | None:
    x, indices = op.operands
    if not rank_of(x):
        return None
    return _taken(emit, x, indices, normal_axis(integer_attribute(op, "axis"), rank_of(x)))


def _taken(emit: Emit, x: SSAValue, indices: SSAValue, axis: int) -> SSAValue:
    """Elements along an axis; rows of a table are looked up."""
    constant = constant_array(indices)
    table = axis == 0 and rank_of(x) == 2 and is_float(element_of(x)) and rank_of(indices) > 0
    if table and element_of(indices) in (i32, i64) and constant is None:
        return emit(EmbeddingOp(x, indices))
    return emit(GatherOp(x, indices, axis))


def _gather_nd(op: OnnxOp, emit: Emit) -> SSAValue | None:
    """The axes that are indexed become one, and so do their indices."""
    x, indices = op.operands
    depth, batch = shape_of(indices)[-1].as_int(), integer_attribute(op, "batch_dims")
    if not depth or any(d.unknown for v in (x, indices) for d in shape_of(v)):
        return None
    if depth == 1 and not batch:
        return _taken(emit, x, emit.reshape(indices, shape_of(indices)[:-1]), 0)
    named, rest = shape_of(x)[: batch + depth], shape_of(x)[batch + depth :]
    places = [_along(emit, indices, axis) for axis in range(batch)]
    places += [_part(emit, indices, at, size) for at, size in enumerate(named[batch:])]
    place = places[0]
    for size, next_place in zip(named[1:], places[1:], strict=True):
        whole = emit.binary(BinaryKind.MUL, place, emit.dims([size], []))
        place = emit.binary(BinaryKind.ADD, whole, next_place)
    flat = emit.reshape(x, [prod(named, start=Dim.const(1)), *rest])
    return emit(GatherOp(flat, place, 0))


def _along(emit: Emit, indices: SSAValue, axis: int) -> SSAValue:
    """The place along a batch axis, for indices [*batch, *rest, depth]: [.., n, ..]."""
    dims: list[Dim | int] = [1] * (rank_of(indices) - 1)
    dims[axis] = shape_of(indices)[axis]
    return emit.reshape(emit(IotaOp(dims[axis], 0)), dims)


def _is_counted(value: SSAValue) -> bool:
    """Whether integers are known not to be negative: constants, or counted up from such a one."""
    known = static(value)
    if known is not None:
        return min(known, default=0) >= 0
    counter = made_by(peel(value), IotaOp)
    if counter is None or counter.step.value.data < 0:
        return False
    start = counter.start.data[0].as_int()
    return start is not None and start >= 0


def _part(emit: Emit, indices: SSAValue, at: int, size: Dim) -> SSAValue:
    """One component of indices [*rest, depth], counted from the front: [*rest]."""
    rest, joined = shape_of(indices)[:-1], made_by(indices, ConcatOp)
    if joined is not None and all(shape_of(x) == (*rest, Dim.const(1)) for x in joined.xs):
        index = emit.reshape(joined.xs[at], rest)
    else:
        starts = [*[Dim()] * len(rest), Dim.const(at)]
        index = emit.reshape(emit(SliceOp(indices, starts, [*rest, 1])), rest)
    if _is_counted(indices) or _is_counted(index):
        return index
    negative = emit(CompareOp(CompareKind.LT, index, emit.scalar(0, i64)))
    wrapped = emit.binary(BinaryKind.ADD, index, emit.dims([size], []))
    return emit(SelectOp(negative, wrapped, index))


def _top_k(op: OnnxOp, emit: Emit) -> Sequence[SSAValue] | None:
    count = contents(op.input(1))
    if count is None or len(count) != 1 or not integer_attribute(op, "sorted", 1):
        return None
    smallest = not integer_attribute(op, "largest", 1)
    axis = integer_attribute(op, "axis", -1)
    made = TopKOp(op.operands[0], count[0], axis, smallest=smallest)
    emit(made)
    return made.results


def _arg_extreme(smallest: bool) -> Converter:
    def convert(op: OnnxOp, emit: Emit) -> SSAValue | None:
        if integer_attribute(op, "select_last_index"):
            return None
        made = TopKOp(op.operands[0], 1, integer_attribute(op, "axis"), smallest=smallest)
        emit(made)
        return emit.reshape(made.indices, emit.result_dims)

    return convert


CONVERTERS: dict[str, Converter] = {
    "Gather": _gather,
    "GatherND": _gather_nd,
    "TopK": _top_k,
    "ArgMax": _arg_extreme(smallest=False),
    "ArgMin": _arg_extreme(smallest=True),
}
"""Operator name to converter."""
