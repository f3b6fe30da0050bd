"""How each mllm op becomes rknn ops: one short function an op, and the table of them."""

from __future__ import annotations

from math import pi, sqrt

import numpy as np
from xdsl.dialects.builtin import f32
from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.mllm import (
    BinaryKind,
    CompareKind,
    ReduceKind,
    UnaryKind,
)
from mllm_compiler.dialects.types import dtype_of, element_of, extents
from mllm_compiler.passes.lower_to_rknn import attention, quantised, vision
from mllm_compiler.passes.lower_to_rknn.builder import Builder
from mllm_compiler.passes.lowering import Lowering
from mllm_compiler.passes.shared_lowerings import shared_lowerings

UNARY: dict[UnaryKind, str] = {
    UnaryKind.NEG: "Neg",
    UnaryKind.ABS: "Abs",
    UnaryKind.SIGN: "Sign",
    UnaryKind.CEIL: "Ceil",
    UnaryKind.FLOOR: "Floor",
    UnaryKind.ROUND: "Round",
    UnaryKind.EXP: "Exp",
    UnaryKind.LOG: "Log",
    UnaryKind.SQRT: "Sqrt",
    UnaryKind.SIN: "Sin",
    UnaryKind.COS: "Cos",
    UnaryKind.TANH: "Tanh",
    UnaryKind.SIGMOID: "Sigmoid",
    UnaryKind.RELU: "Relu",
    UnaryKind.HARD_SWISH: "HardSwish",
    UnaryKind.NOT: "Not",
}
"""Functions that are an operator; `activated` has those that are several."""

BINARY: dict[BinaryKind, str] = {
    BinaryKind.ADD: "Add",
    BinaryKind.SUB: "Sub",
    BinaryKind.MUL: "Mul",
    BinaryKind.DIV: "Div",
    BinaryKind.POW: "Pow",
    BinaryKind.MIN: "Min",
    BinaryKind.MAX: "Max",
    BinaryKind.AND: "And",
    BinaryKind.OR: "Or",
}

COMPARE: dict[CompareKind, str] = {
    CompareKind.EQ: "Equal",
    CompareKind.LT: "Less",
    CompareKind.LE: "LessOrEqual",
    CompareKind.GT: "Greater",
    CompareKind.GE: "GreaterOrEqual",
}

REDUCE: dict[ReduceKind, str] = {
    ReduceKind.SUM: "ReduceSum",
    ReduceKind.MEAN: "ReduceMean",
    ReduceKind.MAX: "ReduceMax",
    ReduceKind.MIN: "ReduceMin",
    ReduceKind.PROD: "ReduceProd",
}


def activated(b: Builder, kind: UnaryKind, x: SSAValue) -> SSAValue:
    """A function of each element; those that the toolkit knows, in the spelling that it knows."""
    match kind:
        case UnaryKind.GELU:
            bent = b.unary("Erf", b.binary("Div", x, b.real(sqrt(2))))
            return b.mul(b.mul(x, b.add(bent, b.real(1.0))), b.real(0.5))
        case UnaryKind.GELU_TANH:
            cube = b.mul(b.binary("Pow", x, b.real(3.0)), b.real(0.044715))
            inner = b.mul(b.add(x, cube), b.real(sqrt(2 / pi)))
            return b.mul(b.mul(x, b.add(b.unary("Tanh", inner), b.real(1.0))), b.real(0.5))
        case UnaryKind.SILU:
            return b.mul(x, b.unary("Sigmoid", x))
        case UnaryKind.RSQRT:
            return b.binary("Div", b.real(1.0), b.unary("Sqrt", x))
        case UnaryKind.RECIPROCAL:
            return b.binary("Div", b.real(1.0), x)
        case _:
            return b.unary(UNARY[kind], x)


def _binary(op: mllm.BinaryOp, b: Builder) -> SSAValue:
    return b.binary(BINARY[op.kind.data], op.a, op.b)


def _compare(op: mllm.CompareOp, b: Builder) -> SSAValue:
    if op.kind.data == CompareKind.NE:
        return b.unary("Not", b.compare("Equal", op.a, op.b))
    return b.compare(COMPARE[op.kind.data], op.a, op.b)


def _select(op: mllm.SelectOp, b: Builder) -> SSAValue:
    return b.call("Where", [op.c, op.a, op.b], extents(op.result), element_of(op.result))


def _gather(op: mllm.GatherOp, b: Builder) -> SSAValue:
    axis = op.axis.value.data
    return b.call("Gather", [op.x, op.indices], extents(op.result), axis=axis)


def _layer_norm(op: mllm.LayerNormOp, b: Builder) -> SSAValue:
    epsilon = op.epsilon.value.data
    gain = op.weight
    if gain is None:
        gain = b.constant(np.ones(extents(op.x)[-1], np.float32))
    given = [op.x, gain] if op.bias is None else [op.x, gain, op.bias]
    return b.call("LayerNormalization", given, extents(op.x), axis=-1, epsilon=epsilon)


def _rms_norm(op: mllm.RmsNormOp, b: Builder) -> SSAValue:
    """A square as a product and a quotient: the toolkit makes no norm of Pow and Reciprocal."""
    dims = extents(op.x)
    square, last = b.mul(op.x, op.x), b.whole(len(dims) - 1)
    mean = b.call("ReduceMean", [square, last], (*dims[:-1], 1), keepdims=1)
    root = b.unary("Sqrt", b.add(mean, b.real(op.epsilon.value.data)))
    return b.mul(b.binary("Div", op.x, root), op.weight)


def _softmax(op: mllm.SoftmaxOp, b: Builder) -> SSAValue:
    return b.call("Softmax", [op.x], extents(op.x), axis=op.axis.value.data)


def _reduce(op: mllm.ReduceOp, b: Builder) -> SSAValue:
    dims = extents(op.result)
    keeps = int(len(dims) == len(extents(op.x)))
    return b.call(REDUCE[op.kind.data], [op.x, b.whole(*op.axis_list)], dims, keepdims=keeps)


def _cumsum(op: mllm.CumsumOp, b: Builder) -> SSAValue:
    axis = b.constant(np.array(op.axis.value.data, np.int64))
    flags = {"exclusive": int(bool(op.exclusive)), "reverse": int(bool(op.reverse))}
    return b.call("CumSum", [op.x, axis], extents(op.x), **flags)


def _slice(op: mllm.SliceOp, b: Builder) -> SSAValue:
    dims, steps, before = extents(op.result), op.step_list, extents(op.x)
    starts = [dim.as_int() or 0 for dim in op.starts.data]
    cut = [a for a in range(len(dims)) if dims[a] != before[a] or steps[a] != 1]
    if not cut:
        return op.x
    ends = [starts[a] + dims[a] * steps[a] for a in cut]
    sides = [b.whole(*(starts[a] for a in cut)), b.whole(*ends), b.whole(*cut)]
    return b.call("Slice", [op.x, *sides, b.whole(*(steps[a] for a in cut))], dims)


def _broadcast(op: mllm.BroadcastOp, b: Builder) -> SSAValue:
    dims = extents(op.result)
    return op.x if extents(op.x) == dims else b.call("Expand", [op.x, b.whole(*dims)], dims)


def _iota(op: mllm.IotaOp, b: Builder) -> SSAValue:
    (count,), start = extents(op.result), op.start.data[0].as_int() or 0
    numbers = start + op.step.value.data * np.arange(count)
    return b.constant(numbers.astype(dtype_of(element_of(op.result))))


def _pad(op: mllm.PadOp, b: Builder) -> SSAValue:
    before, after = op.amounts
    value = b.constant(np.array(op.value.value.data, np.float32))
    return b.call("Pad", [op.x, b.whole(*before, *after), value], extents(op.result), f32)


LOWERINGS: dict[type[Operation], Lowering] = {
    **shared_lowerings(activated),
    mllm.BinaryOp: _binary,
    mllm.CompareOp: _compare,
    mllm.SelectOp: _select,
    mllm.CastOp: quantised.cast,
    mllm.EmbeddingOp: quantised.embedding,
    mllm.GatherOp: _gather,
    mllm.LayerNormOp: _layer_norm,
    mllm.RmsNormOp: _rms_norm,
    mllm.SoftmaxOp: _softmax,
    mllm.ReduceOp: _reduce,
    mllm.CumsumOp: _cumsum,
    mllm.RopeOp: attention.rope,
    mllm.AttentionOp: attention.attention,
    mllm.CrossAttnOp: attention.attention,
    mllm.PatchEmbedOp: vision.patch_embed,
    mllm.ConvOp: vision.conv,
    mllm.PoolOp: vision.pool,
    mllm.SliceOp: _slice,
    mllm.BroadcastOp: _broadcast,
    mllm.PadOp: _pad,
    mllm.IotaOp: _iota,
    mllm.QuantizedLinearOp: quantised.quantized_linear,
    mllm.DequantizeOp: quantised.dequantize,
    mllm.QuantizeOp: quantised.left,
}
"""The function that lowers each op; the others are taken apart before (`fused_parts`)."""
