"""Products over batch times heads as one axis, seen with both axes apart; exact.

    %q3 = mllm.reshape %q : (tensor<2x4x3x8xf32>) -> tensor<8x3x8xf32>
    %kt3 = mllm.reshape %kt : (tensor<2x4x8x5xf32>) -> tensor<8x8x5xf32>
    %s3 = mllm.matmul %q3, %kt3 : (tensor<8x3x8xf32>, tensor<8x8x5xf32>) -> tensor<8x3x5xf32>

becomes

    %s = mllm.matmul %q, %kt : (tensor<2x4x3x8xf32>, tensor<2x4x8x5xf32>) -> tensor<2x4x3x5xf32>
    %s3 = mllm.reshape %s : (tensor<2x4x3x5xf32>) -> tensor<8x3x5xf32>

so that the reshapes end up behind the attention. Where one operand was never apart it is taken
apart as the other one was.
"""

from __future__ import annotations

from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import PatternRewriter

from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import (
    BinaryKind,
    BinaryOp,
    MatmulOp,
    ReshapeOp,
    SoftmaxOp,
    TransposeOp,
    constant_scalar,
)
from mllm_compiler.dialects.mllm.contract import broadcast_dims
from mllm_compiler.dialects.types import rank_of, shape_of
from mllm_compiler.passes.matching import made_by
from mllm_compiler.passes.rewrite import On, substitute


def _apart(value: SSAValue) -> SSAValue | None:
    """[B, H, M, N], where the value is that with its first two axes as one."""
    op = made_by(value, ReshapeOp)
    if op is None or rank_of(value) != 3 or rank_of(op.x) != 4:
        return None
    batch, heads, *rest = shape_of(op.x)
    one = batch.as_int() == heads.as_int() == 1
    if one or any(d.unknown for d in shape_of(op.x)):
        return None
    return op.x if shape_of(value) == (batch * heads, *rest) else None


def _product(op: MatmulOp, rewriter: PatternRewriter) -> None:
    a, b = _apart(op.a), _apart(op.b)
    if a is None or b is None or shape_of(a)[:2] != shape_of(b)[:2]:
        return
    whole = MatmulOp(a, b)
    substitute(rewriter, op, whole, ReshapeOp(whole.result, shape_of(op.result)))


def _softmax(op: SoftmaxOp, rewriter: PatternRewriter) -> None:
    x = _apart(op.x)
    if x is None or op.axis.value.data == 0:
        return
    whole = SoftmaxOp(x, op.axis.value.data + 1)
    substitute(rewriter, op, whole, ReshapeOp(whole.result, shape_of(op.result)))


def _transpose(op: TransposeOp, rewriter: PatternRewriter) -> None:
    x = _apart(op.x)
    if x is None or op.permutation != (0, 2, 1):
        return
    whole = TransposeOp(x, (0, 1, 3, 2))
    substitute(rewriter, op, whole, ReshapeOp(whole.result, shape_of(op.result)))


def _like(value: SSAValue, known: SSAValue) -> ReshapeOp | None:
    """A value [B*H, ..] or [1, ..] with its first axis apart as it is in another value."""
    batch, heads, *_ = shape_of(known)
    first, *rest = shape_of(value) if rank_of(value) == 3 else (None,)
    if first is None or any(d.unknown for d in rest):
        return None
    one = Dim.const(1)
    lead = {one: (one, one), batch * heads: (batch, heads)}.get(first)
    return None if lead is None else ReshapeOp(value, (*lead, *rest))


def _binary(op: BinaryOp, rewriter: PatternRewriter) -> None:
    """Sums and scalings of scores."""
    a, b = _apart(op.a), _apart(op.b)
    known, made = a or b, list[ReshapeOp]()
    if constant_scalar(op.b) is not None and shape_of(op.a) == shape_of(op.result):
        b = op.b
    elif op.kind.data is BinaryKind.ADD and known is not None:
        other = _like(op.b if known is a else op.a, known) if None in (a, b) else None
        made = [] if other is None else [other]
        a, b = (v or (other.result if other is not None else None) for v in (a, b))
    if a is None or b is None or rank_of(op.result) != 3:
        return
    if broadcast_dims(shape_of(a), shape_of(b)) != shape_of(known or a):
        return
    whole = BinaryOp(op.kind.data, a, b)
    substitute(rewriter, op, *made, whole, ReshapeOp(whole.result, shape_of(op.result)))


FOLDED = (
    On(MatmulOp, _product),
    On(SoftmaxOp, _softmax),
    On(TransposeOp, _transpose),
    On(BinaryOp, _binary),
)
"""Patterns that take batch and heads apart."""
