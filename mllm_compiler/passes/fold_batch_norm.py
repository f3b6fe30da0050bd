"""`fold-batch-norm`: what scales and shifts channels becomes part of the convolution before it.

    %0 = mllm.conv %x, %w {...} : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32>
    %1 = mllm.binary sub %0, %mean : (tensor<1x4x6x6xf32>, tensor<4x1x1xf32>) -> ...
    %2 = mllm.binary mul %1, %slope : (tensor<1x4x6x6xf32>, tensor<4x1x1xf32>) -> ...
    %3 = mllm.binary add %2, %shift : (tensor<1x4x6x6xf32>, tensor<4x1x1xf32>) -> ...

becomes, where the numbers are known,

    %3 = mllm.conv %x, %w2, %b2 {...}
      : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>, tensor<4xf32>) -> tensor<1x4x6x6xf32>

with w2 = slope w and b2 = shift - slope mean, to rounding. A batch norm is such a chain (Jacob et
al. 2018, section 3.2), a layer scale is one too. Where something else reads what lies between, or
the other operand varies along another axis, or divides by 0, all stays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, f32
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from mllm_compiler.dialects import store_of
from mllm_compiler.dialects.mllm import BinaryKind, BinaryOp, ConvOp
from mllm_compiler.dialects.types import element_of, rank_of
from mllm_compiler.passes.folded_weights import numbers_of
from mllm_compiler.passes.joined_weights import names_of, stored
from mllm_compiler.passes.matching import made_by, static_shape
from mllm_compiler.passes.rewrite import On, rewrite, substitute
from mllm_compiler.quantisation.grid import Floats
from mllm_compiler.weights import WeightStore

FROM_EITHER_SIDE = (BinaryKind.ADD, BinaryKind.MUL)


def _fold(store: WeightStore, op: BinaryOp, rewriter: PatternRewriter) -> None:
    kind = op.kind.data
    sides = [(op.a, op.b), (op.b, op.a)] if kind in FROM_EITHER_SIDE else [(op.a, op.b)]
    for value, other in sides:
        conv = made_by(value, ConvOp)
        if conv is None or not value.has_one_use() or element_of(value) != f32:
            continue
        channels = _of_channels(store, other, conv)
        weight = None if channels is None else numbers_of(conv.weight, store)
        bias = _bias(store, conv)
        if channels is None or weight is None or bias is None:
            continue
        if kind in (BinaryKind.ADD, BinaryKind.SUB):
            shifted = bias + channels if kind is BinaryKind.ADD else bias - channels
            _replace(store, op, rewriter, conv, None, shifted)
        elif kind is BinaryKind.MUL or (kind is BinaryKind.DIV and channels.all()):
            slope = channels if kind is BinaryKind.MUL else np.reciprocal(channels)
            column = slope.reshape(-1, *[1] * (weight.ndim - 1))
            scaled = None if conv.bias is None else bias * slope
            _replace(store, op, rewriter, conv, weight * column, scaled)
        return


def _of_channels(store: WeightStore, value: SSAValue, conv: ConvOp) -> Floats | None:
    """The numbers of a value that has one for each channel of a convolution, or one for all."""
    shape, count = static_shape(value), static_shape(conv.weight)
    if shape is None or count is None or len(shape) > rank_of(conv.result):
        return None
    whole = [1] * (rank_of(conv.result) - len(shape)) + list(shape)
    if any(n != 1 for axis, n in enumerate(whole) if axis != 1) or whole[1] not in (1, count[0]):
        return None
    numbers = numbers_of(value, store)
    return None if numbers is None else np.broadcast_to(numbers.reshape(-1), count[:1])


def _bias(store: WeightStore, conv: ConvOp) -> Floats | None:
    if conv.bias is not None:
        return numbers_of(conv.bias, store)
    count = static_shape(conv.weight)
    return None if count is None else np.zeros(count[0], np.float32)


def _replace(
    store: WeightStore,
    op: BinaryOp,
    rewriter: PatternRewriter,
    conv: ConvOp,
    weight: Floats | None,
    bias: Floats | None,
) -> None:
    """Puts a convolution in the place of an op, with other numbers where there are any."""
    names = names_of([] if conv.bias is None else [conv.bias])
    rows = [] if weight is None else [stored(store, [weight], names_of([conv.weight]))]
    shift = [] if bias is None else [stored(store, [bias], names)]
    strides, pads, dilations = conv.window
    made = ConvOp(
        conv.x,
        rows[0].results[0] if rows else conv.weight,
        shift[0].results[0] if shift else conv.bias,
        strides=strides,
        pads=pads,
        dilations=dilations,
        groups=conv.groups.value.data,
    )
    substitute(rewriter, op, *rows, *shift, made)


@dataclass(frozen=True)
class FoldBatchNorm(ModulePass):
    """Folds what scales and shifts channels into convolutions."""

    name = "fold-batch-norm"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites to a fixpoint."""
        store = store_of(ctx)
        rewrite(op, On(BinaryOp, lambda op, rewriter: _fold(store, op, rewriter)))
