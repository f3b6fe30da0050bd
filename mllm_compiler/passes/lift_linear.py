"""`lift-linear`: a product with a weight becomes `mllm.linear`, with its bias; exact.

    %t = mllm.transpose %w {perm = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
    %0 = mllm.matmul %x, %t : (tensor<2x8xf32>, tensor<8x4xf32>) -> tensor<2x4xf32>
    %1 = mllm.binary add %0, %b : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>

becomes

    %1 = mllm.linear %x, %w, %b
      : (tensor<2x8xf32>, tensor<4x8xf32>, tensor<4xf32>) -> tensor<2x4xf32>

A product of rows that were joined to a matrix is one of the rows where they stood. A weight that
the model holds as [K, N] is transposed into the store's sidecar, one weight at a time; of a
quantised one the codes are, with scales and zero points, so that it stays quantised. A transposed
weight of the model (a tied head) stays the one blob that it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from mllm_compiler.dialects import store_of
from mllm_compiler.dialects.mllm import (
    BinaryKind,
    BinaryOp,
    BlobAttr,
    ConstantOp,
    DequantizeOp,
    LinearOp,
    MatmulOp,
    ReshapeOp,
    TransposeOp,
    WeightOp,
    constant_array,
)
from mllm_compiler.dialects.types import element_of, is_float, rank_of, shape_of
from mllm_compiler.passes.canonical_form import SHAPE_PATTERNS
from mllm_compiler.passes.matching import made_by
from mllm_compiler.passes.pack_weights import CHUNK
from mllm_compiler.passes.rewrite import On, rewrite, substitute
from mllm_compiler.weights import WeightStore


@dataclass(frozen=True)
class Transposed:
    """Turns weights around, each once.

    Attributes:
        store: Where their bytes lie, and go.
        made: The turned handle of each handle.
    """

    store: WeightStore
    made: dict[BlobAttr, BlobAttr] = field(default_factory=dict[BlobAttr, BlobAttr])

    def matrix(self, value: SSAValue) -> Operation | None:
        """The op that makes the transpose of a weight; None for a matrix that is none."""
        weight = made_by(value, WeightOp)
        if weight is None or rank_of(value) != 2 or weight.value.digest.data not in self.store:
            return None
        name = weight.weight_name.data if weight.weight_name is not None else None
        return WeightOp(self.of(weight.value), name)

    def parameter(self, value: SSAValue) -> Operation:
        """The op that makes the transpose of a scale or zero point of rank 2."""
        array = constant_array(value)
        if array is not None:
            return ConstantOp.of(np.ascontiguousarray(array.T))
        return self.matrix(value) or TransposeOp(value, [1, 0])

    def dequantized(self, op: DequantizeOp) -> list[Operation] | None:
        """The ops that make the transpose of a quantised weight, the last one its numbers."""
        codes = self.matrix(op.x)
        if codes is None or any(
            p is not None and rank_of(p) == 1 for p in (op.scale, op.zero_point)
        ):
            return None
        made = [codes]
        sides: list[SSAValue | None] = []
        for parameter in (op.scale, op.zero_point):
            if parameter is not None and rank_of(parameter):
                made.append(self.parameter(parameter))
                parameter = made[-1].results[0]
            sides.append(parameter)
        scale, zero = sides
        assert scale is not None
        axis = None if op.axis is None else 1 - op.axis.value.data
        size = None if op.block_size is None else op.block_size.value.data
        element = element_of(op.result)
        numbers = DequantizeOp(
            codes.results[0], scale, zero, axis=axis, block_size=size, element=element
        )
        return [*made, numbers]

    def of(self, blob: BlobAttr) -> BlobAttr:
        """The handle of the transposed matrix."""
        if blob not in self.made:
            matrix = self.store.array(blob.digest.data, str(blob.element), blob.dims)
            digest = self.store.add_pieces(_turned(matrix))
            self.store.release()
            self.made[blob] = BlobAttr.of(digest, blob.element, (blob.dims[1], blob.dims[0]))
        return self.made[blob]


def _turned(matrix: NDArray[np.generic]) -> Iterator[NDArray[np.generic]]:
    """The transpose of a matrix, a few rows at a time."""
    # Four rows of narrow integers are whole bytes, however long they are.
    rows = 4 * max(1, CHUNK // max(1, 4 * matrix.shape[0] * matrix.itemsize))
    for start in range(0, matrix.shape[1], rows):
        yield np.ascontiguousarray(matrix[:, start : start + rows].T)


def _product(op: MatmulOp, rewriter: PatternRewriter) -> None:
    """A product with a transposed matrix."""
    turned = made_by(op.b, TransposeOp)
    if turned is None or rank_of(op.b) != 2 or turned.permutation != (1, 0):
        return
    if is_float(element_of(op.a)):
        substitute(rewriter, op, LinearOp(op.a, turned.x))


def _product_with_weight(turn: Transposed, op: MatmulOp, rewriter: PatternRewriter) -> None:
    """A product with a weight that the model holds as [K, N]."""
    if not is_float(element_of(op.b)):
        return
    numbers, matrix = made_by(op.b, DequantizeOp), turn.matrix(op.b)
    plain = None if matrix is None else [matrix]
    made = plain if numbers is None else turn.dequantized(numbers)
    if made is not None:
        substitute(rewriter, op, *made, LinearOp(op.a, made[-1].results[0]))


def _bias(op: BinaryOp, rewriter: PatternRewriter) -> None:
    """A row that is added to a product that nothing else reads."""
    if op.kind.data is not BinaryKind.ADD:
        return
    for product, row in ((op.a, op.b), (op.b, op.a)):
        linear = made_by(product, LinearOp)
        if (
            linear is not None
            and linear.bias is None
            and product.has_one_use()
            and _is_row(row, linear)
        ):
            substitute(rewriter, op, LinearOp(linear.x, linear.weight, row))
            return


def _rows(op: LinearOp, rewriter: PatternRewriter) -> None:
    """A reshape that only moves rows comes to stand behind the product."""
    inner = made_by(op.x, ReshapeOp)
    if inner is None or not rank_of(inner.x) or rank_of(inner.x) == rank_of(op.x):
        return
    if shape_of(inner.x)[-1] != shape_of(op.x)[-1] or any(d.unknown for d in shape_of(inner.x)):
        return
    apart = LinearOp(inner.x, op.weight, op.bias)
    substitute(rewriter, op, apart, ReshapeOp(apart.result, shape_of(op.result)))


def _is_row(row: SSAValue, linear: LinearOp) -> bool:
    return shape_of(row) == shape_of(linear.weight)[:1]


@dataclass(frozen=True)
class LiftLinear(ModulePass):
    """Recognises products with weights."""

    name = "lift-linear"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites to a fixpoint."""
        turn = Transposed(store_of(ctx))
        turned = On(MatmulOp, lambda op, rewriter: _product_with_weight(turn, op, rewriter))
        rewrite(op, On(MatmulOp, _product), turned, On(BinaryOp, _bias))
        rewrite(op, On(LinearOp, _rows), *SHAPE_PATTERNS)
