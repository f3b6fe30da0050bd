"""`lift-norms`: the arithmetic of a normalisation becomes one op; tolerance 1e-5.

    %0 = mllm.binary mul %x, %x : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
    %1 = mllm.reduce mean %0 {axes = array<i64: 1>, keepdims = true} : (...) -> tensor<2x1xf32>
    %2 = mllm.binary add %1, %epsilon : (tensor<2x1xf32>, tensor<f32>) -> tensor<2x1xf32>
    %3 = mllm.unary rsqrt %2 : (tensor<2x1xf32>) -> tensor<2x1xf32>
    %4 = mllm.binary mul %x, %3 : (tensor<2x8xf32>, tensor<2x1xf32>) -> tensor<2x8xf32>
    %5 = mllm.binary mul %4, %w : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>

becomes

    %5 = mllm.rms_norm %x, %w {epsilon = 1.0e-05 : f64}
      : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>

and, where x has its mean taken off first, `mllm.layer_norm`. Quotients by the root are read as
products with its reciprocal, hence the tolerance; weight and bias join where they follow. A
transpose that leaves rows whole comes to stand behind the norm, where it meets others.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from mllm_compiler.dialects.mllm import (
    BinaryKind,
    BinaryOp,
    LayerNormOp,
    ReduceKind,
    ReduceOp,
    RmsNormOp,
    TransposeOp,
    UnaryKind,
)
from mllm_compiler.dialects.types import rank_of, shape_of
from mllm_compiler.passes.canonical_form import SHAPE_PATTERNS
from mllm_compiler.passes.matching import binary, made_by, unary, with_scalar
from mllm_compiler.passes.rewrite import On, rewrite, substitute


def _mean(value: SSAValue) -> SSAValue | None:
    """x, where the value is the mean of x over its last axis, kept as 1."""
    op = made_by(value, ReduceOp)
    if op is None or op.kind.data is not ReduceKind.MEAN or not op.keepdims:
        return None
    return op.x if op.axis_list == (rank_of(op.x) - 1,) else None


def _over_root(value: SSAValue) -> tuple[SSAValue, float] | None:
    """X and epsilon, where the value is x over the root of its mean square plus epsilon."""
    for kind, inner in ((BinaryKind.MUL, UnaryKind.RSQRT), (BinaryKind.DIV, UnaryKind.SQRT)):
        pair = binary(value, kind)
        if pair is None:
            continue
        for x, root in (pair, pair[::-1]) if kind is BinaryKind.MUL else (pair,):
            radicand = unary(root, inner)
            found = _mean_square(radicand) if radicand is not None else None
            if found is not None and found[0] is x:
                return found
    return None


def _mean_square(value: SSAValue) -> tuple[SSAValue, float] | None:
    """X and epsilon, where the value is mean(x^2) + epsilon."""
    summed = with_scalar(value, BinaryKind.ADD)
    square, epsilon = summed if summed is not None else (value, 0.0)
    mean = _mean(square)
    pair = binary(mean, BinaryKind.MUL) if mean is not None else None
    return (pair[0], epsilon) if pair is not None and pair[0] is pair[1] else None


def _is_row(row: SSAValue, x: SSAValue) -> bool:
    return shape_of(row) == shape_of(x)[-1:] and rank_of(x) > 1


def _rms_norm(op: BinaryOp, rewriter: PatternRewriter) -> None:
    if op.kind.data is not BinaryKind.MUL:
        return
    for normal, weight in ((op.a, op.b), (op.b, op.a)):
        found = _over_root(normal) if normal.has_one_use() else None
        if found is not None and _is_row(weight, found[0]) and found[1] >= 0:
            substitute(rewriter, op, RmsNormOp(found[0], weight, epsilon=found[1]))
            return


def _layer_norm(op: BinaryOp, rewriter: PatternRewriter) -> None:
    found = _over_root(op.result)
    centred = binary(found[0], BinaryKind.SUB) if found is not None else None
    if found is None or centred is None or _mean(centred[1]) is not centred[0] or found[1] < 0:
        return
    substitute(rewriter, op, LayerNormOp(centred[0], epsilon=found[1]))


def _weight_and_bias(op: BinaryOp, rewriter: PatternRewriter) -> None:
    for normal, row in ((op.a, op.b), (op.b, op.a)):
        norm = made_by(normal, LayerNormOp)
        if norm is None or not normal.has_one_use() or not _is_row(row, normal):
            continue
        epsilon = norm.epsilon.value.data
        if op.kind.data is BinaryKind.MUL and norm.weight is None and norm.bias is None:
            substitute(rewriter, op, LayerNormOp(norm.x, row, epsilon=epsilon))
            return
        if op.kind.data is BinaryKind.ADD and norm.bias is None:
            substitute(rewriter, op, LayerNormOp(norm.x, norm.weight, row, epsilon=epsilon))
            return


def _before_transpose(op: RmsNormOp | LayerNormOp, rewriter: PatternRewriter) -> None:
    turned = made_by(op.x, TransposeOp)
    if turned is None or not op.x.has_one_use() or turned.permutation[-1] != rank_of(op.x) - 1:
        return
    norm = type(op).create(
        operands=[turned.x, *op.operands[1:]],
        result_types=[turned.x.type],
        properties=op.properties,
    )
    substitute(rewriter, op, norm, TransposeOp(norm.results[0], turned.permutation))


@dataclass(frozen=True)
class LiftNorms(ModulePass):
    """Recognises RMS and layer normalisations."""

    name = "lift-norms"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites to a fixpoint."""
        patterns = (_layer_norm, _rms_norm, _weight_and_bias)
        rewrite(op, *(On(BinaryOp, pattern) for pattern in patterns))
        moved = (On(RmsNormOp, _before_transpose), On(LayerNormOp, _before_transpose))
        rewrite(op, *moved, *SHAPE_PATTERNS)
