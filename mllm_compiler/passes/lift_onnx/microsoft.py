"""ONNX Runtime's fused operators (`com.microsoft`) as `mllm` ops."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import i32, i64
from xdsl.ir import SSAValue

from mllm_compiler.dialects.mllm import (
    BinaryKind,
    CastOp,
    EmbeddingOp,
    IotaOp,
    LayerNormOp,
    MatmulOp,
    ReduceKind,
    ReduceOp,
    RmsNormOp,
    TransposeOp,
    UnaryKind,
    UnaryOp,
)
from mllm_compiler.dialects.mllm.contract import normal_axis
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.dialects.types import element_of, rank_of, shape_of
from mllm_compiler.passes.lift_onnx.attention import present
from mllm_compiler.passes.lift_onnx.emit import Converter, Emit
from mllm_compiler.passes.lift_onnx.linear import integer_attribute, number_attribute


def _plus(emit: Emit, x: SSAValue, other: SSAValue | None) -> SSAValue:
    return x if other is None else emit.binary(BinaryKind.ADD, x, other)


def _gelu(kind: UnaryKind) -> Converter:
    """Gelu of the sum of one or two operands."""
    return lambda op, emit: emit(UnaryOp(kind, _plus(emit, op.operands[0], op.input(1))))


def _quick_gelu(op: OnnxOp, emit: Emit) -> SSAValue:
    x = op.operands[0]
    inner = emit.binary(BinaryKind.MUL, x, number_attribute(op, "alpha", 1.702))
    return emit.binary(BinaryKind.MUL, x, emit(UnaryOp(UnaryKind.SIGMOID, inner)))


def _bias_add(op: OnnxOp, emit: Emit) -> SSAValue:
    x, bias, skip = op.operands
    return _plus(emit, _plus(emit, x, bias), skip)


def _skip_norm(op: OnnxOp, emit: Emit, *, simplified: bool) -> Sequence[SSAValue] | None:
    """The sum of input, bias and skip, normalised; the sum is the fourth result."""
    x, skip, gamma = op.operands[:3]
    bias = op.input(3 if simplified else 4)
    total = _plus(emit, _plus(emit, x, skip), bias)
    if shape_of(total) != shape_of(x):
        return None
    epsilon = number_attribute(op, "epsilon", 1e-5)
    if simplified:
        made: RmsNormOp | LayerNormOp = RmsNormOp(total, gamma, epsilon=epsilon)
    else:
        made = LayerNormOp(total, gamma, op.input(3), epsilon=epsilon)
    return present(op, [emit(made), None, None, total]) if not _statistics(op) else None


def _statistics(op: OnnxOp) -> bool:
    """Whether the mean or the inverse deviation is a result."""
    return any(r is not None for r in op.outputs[1:3])


def _simplified_norm(op: OnnxOp, emit: Emit) -> Sequence[SSAValue] | None:
    x, scale = op.operands
    axis = normal_axis(integer_attribute(op, "axis", -1), rank_of(x))
    if axis != rank_of(x) - 1 or shape_of(scale) != shape_of(x)[-1:]:
        return None
    epsilon = number_attribute(op, "epsilon", 1e-5)
    return present(op, [emit(RmsNormOp(x, scale, epsilon=epsilon))])


def _embed_norm(op: OnnxOp, emit: Emit) -> Sequence[SSAValue] | None:
    ids, segments, words, places, kinds = (op.input(i) for i in range(5))
    gamma, beta, mask, positions = (op.input(i) for i in range(5, 9))
    if ids is None or words is None or places is None:
        return None
    tokens = shape_of(ids)[1]
    if positions is None:
        positions = emit.reshape(emit(IotaOp(tokens)), (1, tokens))
    total = _plus(emit, emit(EmbeddingOp(words, ids)), emit(EmbeddingOp(places, positions)))
    if segments is not None and kinds is not None:
        total = _plus(emit, total, emit(EmbeddingOp(kinds, segments)))
    epsilon = number_attribute(op, "epsilon", 1e-12)
    y = emit(LayerNormOp(total, gamma, beta, epsilon=epsilon))
    return present(op, [y, None if mask is None else _counts(emit, mask), total])


def _counts(emit: Emit, mask: SSAValue) -> SSAValue:
    """How many keys of each sequence a mask leaves, i32."""
    wide = mask if element_of(mask) == i64 else emit(CastOp(mask, i64))
    return emit(CastOp(emit(ReduceOp(ReduceKind.SUM, wide, [1], keepdims=False)), i32))


def _fused_matmul(op: OnnxOp, emit: Emit) -> SSAValue | None:
    sides: list[SSAValue] = []
    for x, name in zip(op.operands, "AB", strict=True):
        order = list(range(rank_of(x)))
        if rank_of(x) < 2 and integer_attribute(op, f"trans{name}"):
            return None
        if integer_attribute(op, f"transBatch{name}"):
            order = [*order[1:-1], 0, order[-1]]
        if integer_attribute(op, f"trans{name}"):
            order[-2:] = [order[-1], order[-2]]
        plain = order == sorted(order)
        sides.append(x if plain else emit(TransposeOp(x, order)))
    if min(rank_of(x) for x in sides) < 2:
        return None
    return emit.binary(BinaryKind.MUL, emit(MatmulOp(*sides)), number_attribute(op, "alpha", 1.0))


CONVERTERS: dict[str, Converter] = {
    "microsoft.Gelu": _gelu(UnaryKind.GELU),
    "microsoft.BiasGelu": _gelu(UnaryKind.GELU),
    "microsoft.FastGelu": _gelu(UnaryKind.GELU_TANH),
    "microsoft.QuickGelu": _quick_gelu,
    "microsoft.BiasAdd": _bias_add,
    "microsoft.SkipLayerNormalization": lambda op, emit: _skip_norm(op, emit, simplified=False),
    "microsoft.SkipSimplifiedLayerNormalization": lambda op, emit: _skip_norm(
        op, emit, simplified=True
    ),
    "microsoft.SimplifiedLayerNormalization": _simplified_norm,
    "microsoft.EmbedLayerNormalization": _embed_norm,
    "microsoft.FusedMatMul": _fused_matmul,
}
"""Operator name to converter."""
