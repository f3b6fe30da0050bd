"""How each mllm op becomes tfl ops: one short function an op, and the table of them."""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import BoolAttr, f32
from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects import mllm, tfl
from mllm_compiler.dialects.mllm import (
    BinaryKind,
    CompareKind,
    ReduceKind,
    UnaryKind,
)
from mllm_compiler.dialects.tfl import TflOp
from mllm_compiler.dialects.types import dtype_of, element_of, extents
from mllm_compiler.passes.folded_weights import numbers_of
from mllm_compiler.passes.lower_to_tfl import quantised, vision
from mllm_compiler.passes.lower_to_tfl.builder import Builder
from mllm_compiler.passes.lower_to_tfl.rope import rope
from mllm_compiler.passes.lowering import Lowering
from mllm_compiler.passes.matching import made_by
from mllm_compiler.passes.shared_lowerings import shared_lowerings

LARGEST_HALF = float(np.finfo(np.float16).max)

UNARY: dict[UnaryKind, type[TflOp]] = {
    UnaryKind.NEG: tfl.NegOp,
    UnaryKind.ABS: tfl.AbsOp,
    UnaryKind.SIGN: tfl.SignOp,
    UnaryKind.CEIL: tfl.CeilOp,
    UnaryKind.FLOOR: tfl.FloorOp,
    UnaryKind.ROUND: tfl.RoundOp,
    UnaryKind.EXP: tfl.ExpOp,
    UnaryKind.LOG: tfl.LogOp,
    UnaryKind.SQRT: tfl.SqrtOp,
    UnaryKind.RSQRT: tfl.RsqrtOp,
    UnaryKind.SIN: tfl.SinOp,
    UnaryKind.COS: tfl.CosOp,
    UnaryKind.TANH: tfl.TanhOp,
    UnaryKind.SIGMOID: tfl.LogisticOp,
    UnaryKind.RELU: tfl.ReluOp,
    UnaryKind.HARD_SWISH: tfl.HardSwishOp,
    UnaryKind.NOT: tfl.LogicalNotOp,
}
"""Functions that are an operator; `activated` has those that are several."""

BINARY: dict[BinaryKind, type[TflOp]] = {
    BinaryKind.ADD: tfl.AddOp,
    BinaryKind.SUB: tfl.SubOp,
    BinaryKind.MUL: tfl.MulOp,
    BinaryKind.DIV: tfl.DivOp,
    BinaryKind.POW: tfl.PowOp,
    BinaryKind.MIN: tfl.MinimumOp,
    BinaryKind.MAX: tfl.MaximumOp,
    BinaryKind.AND: tfl.LogicalAndOp,
    BinaryKind.OR: tfl.LogicalOrOp,
}

COMPARE: dict[CompareKind, type[TflOp]] = {
    CompareKind.EQ: tfl.EqualOp,
    CompareKind.NE: tfl.NotEqualOp,
    CompareKind.LT: tfl.LessOp,
    CompareKind.LE: tfl.LessEqualOp,
    CompareKind.GT: tfl.GreaterOp,
    CompareKind.GE: tfl.GreaterEqualOp,
}

REDUCE: dict[ReduceKind, type[TflOp]] = {
    ReduceKind.SUM: tfl.SumOp,
    ReduceKind.MEAN: tfl.MeanOp,
    ReduceKind.MAX: tfl.ReduceMaxOp,
    ReduceKind.MIN: tfl.ReduceMinOp,
    ReduceKind.PROD: tfl.ReduceProdOp,
}


SQUARED = (ReduceKind.L2, ReduceKind.SUM_SQUARE)


def activated(b: Builder, kind: UnaryKind, x: SSAValue) -> SSAValue:
    """A function of each element."""
    if kind in (UnaryKind.GELU, UnaryKind.GELU_TANH):
        tanh = kind == UnaryKind.GELU_TANH
        return b.call(tfl.GeluOp, [x], extents(x), approximate=BoolAttr.from_bool(tanh))
    if kind == UnaryKind.NEG and not b.takes(tfl.NegOp):
        return b.mul(x, b.real(-1.0))
    if kind == UnaryKind.SILU:
        return b.mul(x, b.unary(tfl.LogisticOp, x))
    if kind == UnaryKind.SOFTPLUS:
        small = b.unary(tfl.ExpOp, b.unary(tfl.NegOp, b.unary(tfl.AbsOp, x)))
        rest = b.unary(tfl.LogOp, b.add(small, b.real(1.0)))
        return b.add(b.unary(tfl.ReluOp, x), rest)
    if kind == UnaryKind.RECIPROCAL:
        return b.binary(tfl.DivOp, b.real(1.0), x)
    return b.unary(UNARY[kind], x)


def _binary(op: mllm.BinaryOp, b: Builder) -> SSAValue:
    return b.binary(BINARY[op.kind.data], op.a, op.b)


def _compare(op: mllm.CompareOp, b: Builder) -> SSAValue:
    return b.call(COMPARE[op.kind.data], [op.a, op.b], extents(op.result), element_of(op.result))


def _select(op: mllm.SelectOp, b: Builder) -> SSAValue:
    if element_of(op.result) == f32 and not b.takes(tfl.SelectV2Op):
        return _blended(op, b)
    return b.call(tfl.SelectV2Op, [op.c, op.a, op.b], extents(op.result), element_of(op.result))


def _blended(op: mllm.SelectOp, b: Builder) -> SSAValue:
    """A m + b (1 - m), with m 1 where c is true: exact for finite numbers."""
    sides = [numbers_of(side, b.store) for side in (op.a, op.b)]
    if any(n is not None and not (np.abs(n) <= LARGEST_HALF).all() for n in sides):
        remedy = "select among numbers up to 65504, or use the target tflite"
        raise b.refused(op, "a half times 0 must be 0", remedy)
    mask = b.cast(op.c, f32)
    chosen, other = b.mul(op.a, mask), sides[1]
    if other is not None and not other.any():
        return b.broadcast(chosen, extents(op.result))
    return b.add(chosen, b.mul(op.b, b.subtract(b.real(1.0), mask)))


def _embedding(op: mllm.EmbeddingOp, b: Builder) -> SSAValue:
    return _looked_up(b, op.table, op.ids, 0)


def _gather(op: mllm.GatherOp, b: Builder) -> SSAValue:
    known = made_by(op.indices, mllm.ConstantOp)
    if not b.takes(tfl.GatherOp) and known is not None and mllm.array_of(known.value).size == 1:
        at = int(mllm.array_of(known.value).item()) % extents(op.x)[op.axis.value.data]
        return _picked(op, b, at)
    return _looked_up(b, op.x, op.indices, op.axis.value.data)


def _picked(op: mllm.GatherOp, b: Builder, at: int) -> SSAValue:
    """One element of an axis, as a slice."""
    axis, dims = op.axis.value.data, list(extents(op.x))
    starts, ends = [0] * len(dims), list(dims)
    starts[axis], ends[axis], dims[axis] = at, at + 1, 1
    sides = [b.whole(side) for side in (starts, ends, [1] * len(dims))]
    return b.reshape(b.call(tfl.StridedSliceOp, [op.x, *sides], dims), extents(op.result))


def _looked_up(b: Builder, x: SSAValue, indices: SSAValue, axis: int) -> SSAValue:
    dims = (*extents(x)[:axis], *extents(indices), *extents(x)[axis + 1 :])
    known = made_by(indices, mllm.ConstantOp)
    if known is None:
        at = b.indices(indices)
    else:
        # TFLite does not count from the end.
        numbers = mllm.array_of(known.value).astype(np.int32)
        at = b.constant(np.where(numbers < 0, numbers + extents(x)[axis], numbers))
    return b.call(tfl.GatherOp, [x, at], dims, axis=axis, batch_dims=0)


def _layer_norm(op: mllm.LayerNormOp, b: Builder) -> SSAValue:
    mean = b.mean(op.x)
    centred = b.binary(tfl.SubOp, op.x, mean)
    variance = b.mean(b.mul(centred, centred))
    normed = _scaled(b, centred, variance, op.epsilon.value.data, op.weight)
    return normed if op.bias is None else b.add(normed, op.bias)


def _rms_norm(op: mllm.RmsNormOp, b: Builder) -> SSAValue:
    square = b.mean(b.mul(op.x, op.x))
    return _scaled(b, op.x, square, op.epsilon.value.data, op.weight)


def _scaled(
    b: Builder, x: SSAValue, square: SSAValue, epsilon: float, weight: SSAValue | None
) -> SSAValue:
    """X by the root of a mean square, then by a gain."""
    scale = b.unary(tfl.RsqrtOp, b.add(square, b.real(epsilon)))
    normed = b.mul(x, scale)
    return normed if weight is None else b.mul(normed, weight)


def _softmax(op: mllm.SoftmaxOp, b: Builder) -> SSAValue:
    """TFLite knows the last axis; another one goes there and back."""
    rank, axis = len(extents(op.x)), op.axis.value.data
    perm = [a for a in range(rank) if a != axis % rank] + [axis % rank]
    x = b.transpose(op.x, perm)
    y = b.softmax(x)
    return b.transpose(y, [int(i) for i in np.argsort(perm)])


def _reduce(op: mllm.ReduceOp, b: Builder) -> SSAValue:
    dims, axes, kind = extents(op.result), op.axis_list, op.kind.data
    keeps = len(dims) == len(extents(op.x))
    x = b.unary(tfl.AbsOp, op.x) if kind == ReduceKind.L1 else op.x
    x = b.mul(x, x) if kind in SQUARED else x
    operation = REDUCE.get(kind, tfl.SumOp)
    y = b.call(operation, [x, b.whole(axes)], dims, keep_dims=keeps)
    return b.unary(tfl.SqrtOp, y) if kind == ReduceKind.L2 else y


def _cumsum(op: mllm.CumsumOp, b: Builder) -> SSAValue:
    flags = {"exclusive": bool(op.exclusive), "reverse": bool(op.reverse)}
    axis = b.whole([op.axis.value.data])
    return b.call(tfl.CumsumOp, [op.x, axis], extents(op.x), None, **flags)


def _slice(op: mllm.SliceOp, b: Builder) -> SSAValue:
    dims, steps = extents(op.result), op.step_list
    starts = [dim.as_int() or 0 for dim in op.starts.data]
    ends = [s + n * k for s, n, k in zip(starts, dims, steps, strict=True)]
    if extents(op.x) == dims:
        return op.x
    sides = [b.whole(side) for side in (starts, ends, steps)]
    return b.call(tfl.StridedSliceOp, [op.x, *sides], dims)


def _broadcast(op: mllm.BroadcastOp, b: Builder) -> SSAValue:
    return b.broadcast(op.x, extents(op.result))


def _iota(op: mllm.IotaOp, b: Builder) -> SSAValue:
    (count,), start = extents(op.result), op.start.data[0].as_int() or 0
    numbers = start + op.step.value.data * np.arange(count)
    return b.constant(numbers.astype(dtype_of(element_of(op.result))))


def _left(op: mllm.DynamicQuantizeOp, b: Builder) -> None:
    """Left until the products that name it read the real rows; then nothing uses it."""


def _pad(op: mllm.PadOp, b: Builder) -> SSAValue:
    before, after = op.amounts
    around = b.constant(np.array(list(zip(before, after, strict=True)), np.int32))
    value = b.real(op.value.value.data)
    return b.call(tfl.PadV2Op, [op.x, around, value], extents(op.result))


LOWERINGS: dict[type[Operation], Lowering] = {
    **shared_lowerings(activated),
    mllm.BinaryOp: _binary,
    mllm.CompareOp: _compare,
    mllm.SelectOp: _select,
    mllm.CastOp: quantised.cast,
    mllm.EmbeddingOp: _embedding,
    mllm.GatherOp: _gather,
    mllm.LayerNormOp: _layer_norm,
    mllm.RmsNormOp: _rms_norm,
    mllm.SoftmaxOp: _softmax,
    mllm.ReduceOp: _reduce,
    mllm.CumsumOp: _cumsum,
    mllm.RopeOp: rope,
    mllm.PatchEmbedOp: vision.patch_embed,
    mllm.ConvOp: vision.conv,
    mllm.PoolOp: vision.pool,
    mllm.SliceOp: _slice,
    mllm.BroadcastOp: _broadcast,
    mllm.PadOp: _pad,
    mllm.IotaOp: _iota,
    mllm.QuantizedLinearOp: quantised.quantized_linear,
    mllm.DequantizeOp: quantised.dequantize,
    mllm.DynamicQuantizeOp: _left,
}
"""The function that lowers each op; the others are taken apart before (`fused_parts`)."""
