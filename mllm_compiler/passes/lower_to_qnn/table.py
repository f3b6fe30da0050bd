"""How each mllm op becomes qnn ops: one short function an op, and the table of them."""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import i1
from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects import mllm, qnn
from mllm_compiler.dialects.mllm import (
    BinaryKind,
    CompareKind,
    ConstantOp,
    ReduceKind,
    UnaryKind,
    WeightOp,
)
from mllm_compiler.dialects.qnn import QnnOp
from mllm_compiler.dialects.types import dtype_of, element_of, extents
from mllm_compiler.passes.lower_to_qnn import quantised, vision
from mllm_compiler.passes.lower_to_qnn.builder import Builder
from mllm_compiler.passes.lower_to_qnn.rope import rope
from mllm_compiler.passes.lowering import Lowering
from mllm_compiler.passes.shared_lowerings import shared_lowerings

UNARY: dict[UnaryKind, type[QnnOp]] = {
    UnaryKind.NEG: qnn.ElementWiseNegOp,
    UnaryKind.ABS: qnn.ElementWiseAbsOp,
    UnaryKind.SIGN: qnn.ElementWiseSignOp,
    UnaryKind.CEIL: qnn.ElementWiseCeilOp,
    UnaryKind.FLOOR: qnn.ElementWiseFloorOp,
    UnaryKind.ROUND: qnn.ElementWiseRoundOp,
    UnaryKind.EXP: qnn.ElementWiseExpOp,
    UnaryKind.LOG: qnn.ElementWiseLogOp,
    UnaryKind.SQRT: qnn.ElementWiseSquareRootOp,
    UnaryKind.RSQRT: qnn.ElementWiseRsqrtOp,
    UnaryKind.SIN: qnn.ElementWiseSinOp,
    UnaryKind.COS: qnn.ElementWiseCosOp,
    UnaryKind.TANH: qnn.TanhOp,
    UnaryKind.SIGMOID: qnn.SigmoidOp,
    UnaryKind.RELU: qnn.ReluOp,
    UnaryKind.GELU: qnn.GeluOp,
    UnaryKind.GELU_TANH: qnn.GeluOp,
    UnaryKind.HARD_SWISH: qnn.HardSwishOp,
    UnaryKind.NOT: qnn.ElementWiseNotOp,
}
"""Functions that are an operator; `activated` has those that are several."""

BINARY: dict[BinaryKind, type[QnnOp]] = {
    BinaryKind.ADD: qnn.ElementWiseAddOp,
    BinaryKind.SUB: qnn.ElementWiseSubtractOp,
    BinaryKind.MUL: qnn.ElementWiseMultiplyOp,
    BinaryKind.DIV: qnn.ElementWiseDivideOp,
    BinaryKind.POW: qnn.ElementWisePowerOp,
    BinaryKind.MIN: qnn.ElementWiseMinimumOp,
    BinaryKind.MAX: qnn.ElementWiseMaximumOp,
    BinaryKind.AND: qnn.ElementWiseAndOp,
    BinaryKind.OR: qnn.ElementWiseOrOp,
}

COMPARE: dict[CompareKind, type[QnnOp]] = {
    CompareKind.EQ: qnn.ElementWiseEqualOp,
    CompareKind.NE: qnn.ElementWiseNotEqualOp,
    CompareKind.LT: qnn.ElementWiseLessOp,
    CompareKind.LE: qnn.ElementWiseLessEqualOp,
    CompareKind.GT: qnn.ElementWiseGreaterOp,
    CompareKind.GE: qnn.ElementWiseGreaterEqualOp,
}

REDUCE: dict[ReduceKind, type[QnnOp]] = {
    ReduceKind.SUM: qnn.ReduceSumOp,
    ReduceKind.MEAN: qnn.ReduceMeanOp,
    ReduceKind.MAX: qnn.ReduceMaxOp,
    ReduceKind.MIN: qnn.ReduceMinOp,
}


def activated(b: Builder, kind: UnaryKind, x: SSAValue) -> SSAValue:
    """A function of each element."""
    if kind == UnaryKind.SILU:
        return b.mul(x, b.unary(qnn.SigmoidOp, x))
    if kind == UnaryKind.RECIPROCAL:
        return b.binary(qnn.ElementWiseDivideOp, b.real(1.0), x)
    return b.unary(UNARY[kind], x)


def _binary(op: mllm.BinaryOp, b: Builder) -> SSAValue:
    return b.binary(BINARY[op.kind.data], op.a, op.b)


def _compare(op: mllm.CompareOp, b: Builder) -> SSAValue:
    return b.binary(COMPARE[op.kind.data], op.a, op.b, i1)


def _select(op: mllm.SelectOp, b: Builder) -> SSAValue:
    element = element_of(op.a)
    return b.call(qnn.ElementWiseSelectOp, [op.c, op.a, op.b], extents(op.result), element)


def _linear(op: mllm.LinearOp, b: Builder) -> SSAValue:
    if isinstance(op.weight.owner, WeightOp | ConstantOp | qnn.StaticTensorOp):
        return b.linear(op.x, op.weight, op.bias)
    made = b.reshape(b.product(op.x, op.weight, transpose_b=True), extents(op.result))
    return made if op.bias is None else b.add(made, op.bias)


def _gather(op: mllm.GatherOp, b: Builder) -> SSAValue:
    return b.gather(op.x, op.indices, op.axis.value.data)


def _norm(op: mllm.LayerNormOp | mllm.RmsNormOp, b: Builder) -> SSAValue:
    """The rows of a matrix: HTP's emulator computes others wrong."""
    dims, options = extents(op.x), {"epsilon": op.epsilon.value.data, "axes": [1]}
    rows = b.reshape(op.x, (int(np.prod(dims[:-1])), dims[-1]))
    gamma = op.weight
    if gamma is None:
        gamma = b.constant(np.ones(dims[-1:], np.float32))
    if isinstance(op, mllm.LayerNormOp):
        made = b.call(qnn.LayerNormOp, [rows, gamma, op.bias], extents(rows), **options)
    else:
        made = b.call(qnn.RmsNormOp, [rows, gamma], extents(rows), **options)
    return b.reshape(made, dims)


def _softmax(op: mllm.SoftmaxOp, b: Builder) -> SSAValue:
    """HTP knows the last axis; another one goes there and back."""
    rank, axis = len(extents(op.x)), op.axis.value.data
    perm = [a for a in range(rank) if a != axis % rank] + [axis % rank]
    y = b.softmax(b.transpose(op.x, perm))
    return b.transpose(y, [int(i) for i in np.argsort(perm)])


def _reduce(op: mllm.ReduceOp, b: Builder) -> SSAValue:
    dims, axes = extents(op.result), [a % len(extents(op.x)) for a in op.axis_list]
    keeps = len(dims) == len(extents(op.x))
    return b.call(REDUCE[op.kind.data], [op.x], dims, axes=axes, keep_dims=keeps)


def _slice(op: mllm.SliceOp, b: Builder) -> SSAValue:
    dims, steps = extents(op.result), op.step_list
    if extents(op.x) == dims:
        return op.x
    starts = [dim.as_int() or 0 for dim in op.starts.data]
    ranges = [n for s, d, k in zip(starts, dims, steps, strict=True) for n in (s, s + d * k, k)]
    return b.call(qnn.StridedSliceOp, [op.x], dims, ranges=ranges)


def _broadcast(op: mllm.BroadcastOp, b: Builder) -> SSAValue:
    return b.tile(op.x, extents(op.result))


def _iota(op: mllm.IotaOp, b: Builder) -> SSAValue:
    (count,), start = extents(op.result), op.start.data[0].as_int() or 0
    numbers = start + op.step.value.data * np.arange(count)
    dtype = dtype_of(element_of(op.result))
    return b.constant(numbers.astype(np.int32 if dtype.kind == "i" else dtype))


def _pad(op: mllm.PadOp, b: Builder) -> SSAValue:
    """Blocks of the number beside it: HTP's own operator gives something else in places."""
    (before, after), x = op.amounts, op.x
    for axis, sides in enumerate(zip(before, after, strict=True)):
        dims = extents(x)
        blocks = [
            b.constant(
                np.full((*dims[:axis], n, *dims[axis + 1 :]), op.value.value.data, np.float32)
            )
            for n in sides
            if n
        ]
        if blocks:
            x = b.concat([*blocks[: bool(sides[0])], x, *blocks[bool(sides[0]) :]], axis)
    return x


LOWERINGS: dict[type[Operation], Lowering] = {
    **shared_lowerings(activated),
    mllm.BinaryOp: _binary,
    mllm.CompareOp: _compare,
    mllm.SelectOp: _select,
    mllm.CastOp: quantised.cast,
    mllm.LinearOp: _linear,
    mllm.EmbeddingOp: quantised.embedding,
    mllm.GatherOp: _gather,
    mllm.LayerNormOp: _norm,
    mllm.RmsNormOp: _norm,
    mllm.SoftmaxOp: _softmax,
    mllm.ReduceOp: _reduce,
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
}
"""The function that lowers each op; the others are taken apart before (`fused_parts`)."""
