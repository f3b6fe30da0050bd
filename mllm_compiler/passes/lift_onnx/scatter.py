"""`TensorScatter`, which writes new tokens into a cache of fixed length, as `mllm` ops."""

from __future__ import annotations

from xdsl.dialects.builtin import i64
from xdsl.ir import Attribute, SSAValue

from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import (
    BinaryKind,
    CastOp,
    CompareKind,
    CompareOp,
    IotaOp,
    MatmulOp,
    SelectOp,
    TransposeOp,
)
from mllm_compiler.dialects.mllm.contract import normal_axis
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.dialects.types import element_of, is_float, rank_of, shape_of
from mllm_compiler.passes.lift_onnx.emit import Converter, Emit
from mllm_compiler.passes.lift_onnx.linear import integer_attribute

ONE = Dim.const(1)


def _tensor_scatter(op: OnnxOp, emit: Emit) -> SSAValue | None:
    """The past where nothing is written, and the update where it is.

    An update of one token is seen at every place; more are brought to theirs by a product with
    ones and zeros, since `mllm` has no scatter.
    """
    past, update, start = op.operands[0], op.operands[1], op.input(2)
    axis = normal_axis(integer_attribute(op, "axis", -2), rank_of(past))
    size, count = shape_of(past)[axis], shape_of(update)[axis]
    if any(d.unknown for x in (past, update) for d in shape_of(x)):
        return None
    place = _places(emit, start, size, circular=op.attribute("mode") == "circular")
    inside = emit(CompareOp(CompareKind.GE, place, emit.scalar(0, i64)))
    before = emit(CompareOp(CompareKind.LT, place, emit.dims([count], ())))
    inside = emit.binary(BinaryKind.AND, inside, before)
    along = [ONE] * rank_of(past)
    along[0], along[axis] = shape_of(place)[0], size
    if count != ONE:
        if not is_float(element_of(past)):
            return None
        update = _moved(emit, update, axis, place, element_of(past))
    return emit(SelectOp(emit.reshape(inside, along), update, past))


def _places(emit: Emit, start: SSAValue | None, size: Dim, *, circular: bool) -> SSAValue:
    """Which token of the update stands at each place of the cache, [B, size] or [1, size]."""
    row = emit.reshape(emit(IotaOp(size)), (1, size))
    if start is None:
        return row
    first = start if element_of(start) == i64 else emit(CastOp(start, i64))
    extent = emit.dims([size], ())
    if circular:
        first = emit.binary(BinaryKind.MOD, first, extent)
    place = emit.binary(BinaryKind.SUB, row, emit.reshape(first, (*shape_of(first), 1)))
    if not circular:
        return place
    negative = emit(CompareOp(CompareKind.LT, place, emit.scalar(0, i64)))
    return emit(SelectOp(negative, emit.binary(BinaryKind.ADD, place, extent), place))


def _moved(
    emit: Emit, update: SSAValue, axis: int, place: SSAValue, element: Attribute
) -> SSAValue:
    """The update with each token at its place along the axis."""
    rank, count = rank_of(update), shape_of(update)[axis]
    batch, size = shape_of(place)
    tokens = emit.reshape(emit(IotaOp(count)), (1, 1, count))
    there = emit(CompareOp(CompareKind.EQ, emit.reshape(place, (batch, size, 1)), tokens))
    ones = emit(CastOp(there, element))
    if rank == 2:
        made = emit(MatmulOp(ones, emit.reshape(update, (*shape_of(update), 1))))
        return emit.reshape(made, (shape_of(made)[0], size))
    others = [a for a in range(rank) if a != axis]
    order = [*others[:-1], axis, others[-1]]
    columns = emit(TransposeOp(update, order))
    spread = emit.reshape(ones, (batch, *[1] * (rank - 3), size, count))
    made = emit(MatmulOp(spread, columns))
    return emit(TransposeOp(made, [order.index(a) for a in range(rank)]))


CONVERTERS: dict[str, Converter] = {"TensorScatter": _tensor_scatter}
"""Operator name to converter."""
