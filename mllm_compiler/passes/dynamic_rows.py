"""`dynamic-rows`: rows that are quantised as the model runs have the form that TFLite gives them.

    %codes, %scale = mllm.dynamic_quantize %x {axis = 1, block_size = 32} : .. -> i8, f32
    %y = mllm.quantized_linear %codes, %scale, %w, %s {block_size = 32}
->
    %codes, %scale, %zero = mllm.dynamic_quantize %x {axis = 1} : .. -> i8, f32, i8
    %y = mllm.quantized_linear %codes, %scale, %w, %s2 zero %zero {block_size = 32}

A row has one scale and a zero point; scales of blocks of weights are bfloat16 (XNNPACK). This
changes numbers as quantising does; `lower-to-tfl` behind it does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, i8
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from mllm_compiler.dialects import store_of
from mllm_compiler.dialects.mllm import DynamicQuantizeOp, QuantizedLinearOp
from mllm_compiler.dialects.types import rank_of
from mllm_compiler.passes.folded_weights import numbers_of, put_numbers
from mllm_compiler.passes.matching import made_by
from mllm_compiler.passes.rewrite import On, rewrite, substitute
from mllm_compiler.weights import WeightStore

SCALE = 3
"""The operand of a product that has the weight's scales."""


def _rows(store: WeightStore, op: QuantizedLinearOp, rewriter: PatternRewriter) -> None:
    rows = made_by(op.x, DynamicQuantizeOp)
    if rows is None or op.x_zero is not None:
        return
    scales = numbers_of(op.weight_scale, store)
    if op.block_size is not None and scales is not None:
        narrow = scales.astype(ml_dtypes.bfloat16).astype(np.float32)
        put_numbers(op, SCALE, narrow, store)
    coded = DynamicQuantizeOp(rows.x, i8, symmetric=False, axis=rank_of(rows.x) - 1)
    product = QuantizedLinearOp(
        coded.codes,
        coded.scale,
        op.weight,
        op.weight_scale,
        x_zero=coded.zero_point,
        weight_zero=op.weight_zero,
        bias=op.bias,
        block_size=None if op.block_size is None else op.block_size.value.data,
    )
    for made, former in ((coded, rows), (product, op)):
        made.attributes.update(former.attributes)
    substitute(rewriter, op, coded, product)


@dataclass(frozen=True)
class DynamicRows(ModulePass):
    """Gives rows that are quantised as the model runs one scale and a zero point each."""

    name = "dynamic-rows"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites products of such rows; what nothing reads any more goes."""
        store = store_of(ctx)
        rewrite(op, On(QuantizedLinearOp, lambda o, r: _rows(store, o, r)))
