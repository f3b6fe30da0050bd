"""`lift-quantized-linear`: a product of codes with a weight becomes one op; exact.

    %p = mllm.integer_matmul %x, %w : (tensor<2x8xi8>, tensor<8x4xi8>) -> tensor<2x4xi32>
    %s = mllm.binary mul %xs, %ws : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
    %y = mllm.dequantize %p, %s : (tensor<2x4xi32>, tensor<4xf32>) -> tensor<2x4xf32>

and

    %0 = mllm.dequantize %x, %xs : (tensor<2x8xi8>, tensor<f32>) -> tensor<2x8xf32>
    %1 = mllm.dequantize %t, %c : (tensor<4x8xi8>, tensor<4x1xf32>) -> tensor<4x8xf32>
    %y = mllm.linear %0, %1 : (tensor<2x8xf32>, tensor<4x8xf32>) -> tensor<2x4xf32>

become

    %y = mllm.quantized_linear %x, %xs, %t, %c
      : (tensor<2x8xi8>, tensor<f32>, tensor<4x8xi8>, tensor<4x1xf32>) -> tensor<2x4xf32>

so that operators on codes, and pairs of QuantizeLinear and DequantizeLinear, are one spelling. The
integer sum is exact where that of real numbers was rounded. A row that is added becomes the bias.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerType, ModuleOp, f32
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from mllm_compiler.dialects import store_of
from mllm_compiler.dialects.mllm import (
    BinaryKind,
    BinaryOp,
    CastOp,
    DequantizeOp,
    IntegerMatmulOp,
    LinearOp,
    QuantizedLinearOp,
    ReshapeOp,
    TransposeOp,
)
from mllm_compiler.dialects.mllm.quant import value_of
from mllm_compiler.dialects.types import bits_of, element_of, rank_of, shape_of
from mllm_compiler.passes.canonical_form import SHAPE_PATTERNS
from mllm_compiler.passes.lift_linear import Transposed
from mllm_compiler.passes.matching import binary, made_by
from mllm_compiler.passes.rewrite import On, rewrite, substitute

WIDEST = 16
"""Bits of the codes that a quantised product reads; sums that are scaled again are wider."""


def _scaled_sums(
    turn: Transposed, op: Operation, sums: SSAValue, scale: SSAValue, rewriter: PatternRewriter
) -> None:
    """The sums of a product with a weight, times the scales of both."""
    product, pair = made_by(sums, IntegerMatmulOp), binary(scale, BinaryKind.MUL)
    if product is None or pair is None or not sums.has_one_use():
        return
    weight = _turned_weight(turn, product.b)
    scales = _told_apart(pair, product)
    zero = product.b_zero
    if weight is None or scales is None or (zero is not None and rank_of(zero) > 2):
        return
    made, before = weight[1], weight[0]
    x_scale, weight_scale = scales
    columns = [None if p is None else _as_column(p, before) for p in (weight_scale, zero)]
    assert columns[0] is not None
    linear = QuantizedLinearOp(
        product.a, x_scale, made, columns[0], x_zero=product.a_zero, weight_zero=columns[1]
    )
    substitute(rewriter, op, *before, linear)


def _turned_weight(turn: Transposed, b: SSAValue) -> tuple[list[Operation], SSAValue] | None:
    """A weight [N, K] for the right side [K, N] of a product, and the ops that make it."""
    turned = made_by(b, TransposeOp)
    if turned is not None and turned.permutation == (1, 0):
        return [], turned.x
    made = turn.matrix(b)
    return None if made is None else ([made], made.results[0])


def _told_apart(
    pair: tuple[SSAValue, SSAValue], product: IntegerMatmulOp
) -> tuple[SSAValue, SSAValue] | None:
    """The scale of rows and that of columns, of two that are multiplied."""
    columns = shape_of(product.b)[-1]
    for rows, other in (pair, pair[::-1]):
        dims = shape_of(other)
        is_row = not dims or (dims[-1] == columns and all(d.as_int() == 1 for d in dims[:-1]))
        of_rows = not rank_of(rows) or shape_of(rows)[-1].as_int() == 1
        if of_rows and is_row and rank_of(rows) <= rank_of(product.a):
            return rows, other
    return None


def _as_column(row: SSAValue, made: list[Operation]) -> SSAValue:
    """A scale or zero point of columns as [N, 1]; a scalar stays one."""
    if rank_of(row) == 0:
        return row
    made.append(ReshapeOp(row, [shape_of(row)[-1], 1]))
    return made[-1].results[0]


def _numbers_of_sums(turn: Transposed, op: DequantizeOp, rewriter: PatternRewriter) -> None:
    if op.zero_point is None and op.axis is None:
        _scaled_sums(turn, op, op.x, op.scale, rewriter)


def _multiplied_sums(turn: Transposed, op: BinaryOp, rewriter: PatternRewriter) -> None:
    """As a graph of plain operators has it: the sums are cast, then multiplied."""
    if op.kind.data is not BinaryKind.MUL:
        return
    for value, scale in ((op.a, op.b), (op.b, op.a)):
        cast = made_by(value, CastOp)
        if cast is not None and element_of(value) == f32 and value.has_one_use():
            _scaled_sums(turn, op, cast.x, scale, rewriter)
            return


def _product_of_numbers(op: LinearOp, rewriter: PatternRewriter) -> None:
    """A linear map of codes by a quantised weight.

    Its rows have one scale each, or all one, or one for each block of the weight.
    """
    x, weight = made_by(op.x, DequantizeOp), made_by(op.weight, DequantizeOp)
    if x is None or weight is None or not _is_narrow(x, weight):
        return
    size = value_of(weight.block_size)
    if not _fits_rows(x, size):
        return
    in_rows = size is None and all(_is_for_rows(p) for p in (weight.scale, weight.zero_point))
    in_blocks = size is not None and weight.axis is not None and weight.axis.value.data == 1
    if not in_rows and not in_blocks:
        return
    made = QuantizedLinearOp(
        x.x,
        x.scale,
        weight.x,
        weight.scale,
        x_zero=x.zero_point,
        weight_zero=weight.zero_point,
        bias=op.bias,
        block_size=size,
    )
    substitute(rewriter, op, made)


def _fits_rows(x: DequantizeOp, size: int | None) -> bool:
    """Whether a row has one scale, or one for each of its blocks of a size."""
    if x.axis is None or x.block_size is None:
        return all(_is_for_rows(p) for p in (x.scale, x.zero_point))
    return x.axis.value.data == rank_of(x.x) - 1 and x.block_size.value.data == size


def _is_narrow(*ops: DequantizeOp) -> bool:
    return all(
        isinstance(element_of(op.x), IntegerType) and bits_of(element_of(op.x)) <= WIDEST
        for op in ops
    )


def _is_for_rows(parameter: SSAValue | None) -> bool:
    """Whether a parameter has one element for each row, or one for all."""
    return parameter is None or not rank_of(parameter) or shape_of(parameter)[-1].as_int() == 1


def _bias(op: BinaryOp, rewriter: PatternRewriter) -> None:
    """A row that is added to a product that nothing else reads."""
    if op.kind.data is not BinaryKind.ADD:
        return
    for value, row in ((op.a, op.b), (op.b, op.a)):
        linear = made_by(value, QuantizedLinearOp)
        if linear is None or linear.bias is not None or not value.has_one_use():
            continue
        if shape_of(row) == shape_of(linear.weight)[:1]:
            substitute(rewriter, op, linear.with_bias(row))
            return


@dataclass(frozen=True)
class LiftQuantizedLinear(ModulePass):
    """Recognises products of codes with quantised weights."""

    name = "lift-quantized-linear"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites to a fixpoint."""
        turn = Transposed(store_of(ctx))
        rewrite(
            op,
            *SHAPE_PATTERNS,
            On(DequantizeOp, lambda op, rewriter: _numbers_of_sums(turn, op, rewriter)),
            On(BinaryOp, lambda op, rewriter: _multiplied_sums(turn, op, rewriter)),
            On(LinearOp, _product_of_numbers),
            On(BinaryOp, _bias),
        )
