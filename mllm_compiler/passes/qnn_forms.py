"""What `encode-qnn` must know of operators of QNN: which HTP has on codes, and how."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xdsl.dialects.builtin import f32
from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects import qnn
from mllm_compiler.dialects.mllm import ConstantOp, WeightOp
from mllm_compiler.dialects.qnn import QnnOp, StaticTensorOp
from mllm_compiler.dialects.qnn.base import REST, forms_of
from mllm_compiler.dialects.qnn.linalg import NormOp
from mllm_compiler.dialects.qnn.vision import ConvolutionOp
from mllm_compiler.dialects.types import element_of
from mllm_compiler.passes.encodings import Rules
from mllm_compiler.passes.graphs import users
from mllm_compiler.quantisation.values import Encoding

MOVES: Final = (
    *(qnn.ReshapeOp, qnn.TransposeOp, qnn.ConcatOp, qnn.StridedSliceOp, qnn.TileOp),
    *(qnn.GatherOp, qnn.PoolMax2dOp, qnn.ReduceMaxOp, qnn.ReduceMinOp),
    qnn.ElementWiseSelectOp,
)
"""Operators whose result has elements of what they read."""

BETWEEN: Final = (qnn.CastOp, qnn.QuantizeOp, qnn.DequantizeOp, qnn.ConvertOp, StaticTensorOp)
"""Operators that go from one kind of value to another."""


def rules_of(bits: int) -> Rules:
    """The rules for codes of so many bits."""
    part = Encoding(2.0**-bits, -(1 << (bits - 1)), bits)
    return Rules(
        coded=lambda op: _coded(op, f"ui{bits}"),
        operands=_operands,
        moves=lambda op: _operands(op) if isinstance(op, MOVES) else (),
        fixed=lambda op: part if isinstance(op, qnn.SoftmaxOp) else None,
        symmetric=lambda value: bits == 16 and _is_even(value),
    )


def _coded(op: Operation, element: str) -> bool:
    """Whether HTP has an op, as it is, on codes of a type."""
    if not isinstance(op, QnnOp) or isinstance(op, BETWEEN) or element_of(op.y) != f32:
        return False
    if isinstance(op, qnn.FullyConnectedOp):
        stored = op.bias is None or isinstance(op.bias.owner, WeightOp | ConstantOp)
        return stored and isinstance(op.weights.owner, StaticTensorOp)
    forms = forms_of(op.operator())
    return any(element in form.elements.get("y", form.elements.get(REST, ())) for form in forms)


def _operands(op: Operation) -> Sequence[SSAValue]:
    """What an op reads that has codes of one scale."""
    if isinstance(op, qnn.FullyConnectedOp | ConvolutionOp):
        return op.operands[:1]
    return [v for v in op.operands if element_of(v) == f32]


def _is_even(value: SSAValue) -> bool:
    """Whether a product of matrices reads a value second, a norm as its gain, or Tanh makes it."""
    return isinstance(value.owner, qnn.TanhOp) or any(
        (isinstance(op, qnn.MatMulOp) and op.b is value)
        or (isinstance(op, NormOp) and op.gamma is value)
        for op in users(value)
    )
