"""What the tables of all vendors lower alike, in the few operators that every vendor has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.mllm import Activation, UnaryKind
from mllm_compiler.dialects.types import extents
from mllm_compiler.passes.lowered_attention import attention, kv_append
from mllm_compiler.passes.lowering import Lowering, TensorBuilder

Activated = Callable[[Any, UnaryKind, SSAValue], SSAValue]
"""A vendor's function of each element: builder, kind, x -> y."""


def shared_lowerings(activated: Activated) -> dict[type[Operation], Lowering]:
    """The first rows of a vendor's table; what it has otherwise stands behind them.

    Args:
        activated: The vendor's functions of elements.
    """

    def unary(op: mllm.UnaryOp, b: TensorBuilder) -> SSAValue:
        return activated(b, op.kind.data, op.x)

    def mlp(op: mllm.MlpOp, b: TensorBuilder) -> SSAValue:
        hidden = activated(b, _kind(op.activation.data), b.linear(op.x, op.w1, op.b1))
        return b.linear(hidden, op.w2, op.b2)

    def gated_mlp(op: mllm.GatedMlpOp, b: TensorBuilder) -> SSAValue:
        gate = activated(b, _kind(op.activation.data), b.linear(op.x, op.gate, None))
        return b.linear(b.mul(gate, b.linear(op.x, op.up, None)), op.down, None)

    return {
        mllm.UnaryOp: unary,
        mllm.LinearOp: _linear,
        mllm.MlpOp: mlp,
        mllm.GatedMlpOp: gated_mlp,
        mllm.MatmulOp: _matmul,
        mllm.AttentionOp: attention,
        mllm.CrossAttnOp: attention,
        mllm.KvAppendOp: kv_append,
        mllm.ReshapeOp: _reshape,
        mllm.TransposeOp: _transpose,
        mllm.ConcatOp: _concat,
    }


def _kind(activation: Activation) -> UnaryKind:
    return UnaryKind(activation.value)


def _linear(op: mllm.LinearOp, b: TensorBuilder) -> SSAValue:
    return b.linear(op.x, op.weight, op.bias)


def _matmul(op: mllm.MatmulOp, b: TensorBuilder) -> SSAValue:
    return b.reshape(b.product(op.a, op.b), extents(op.result))


def _reshape(op: mllm.ReshapeOp, b: TensorBuilder) -> SSAValue:
    return b.reshape(op.x, extents(op.result))


def _transpose(op: mllm.TransposeOp, b: TensorBuilder) -> SSAValue:
    return b.transpose(op.x, op.permutation)


def _concat(op: mllm.ConcatOp, b: TensorBuilder) -> SSAValue:
    return op.xs[0] if len(op.xs) == 1 else b.concat([*op.xs], op.axis.value.data)
