"""Products and tables of codes as operators of TFLite.

TFLite quantises the rows of real activations by itself where weights have scales: what
`dynamic-rows` made of `mllm.dynamic_quantize` is what it computes, and is not read.
"""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import f32
from xdsl.ir import SSAValue

from mllm_compiler.dialects import mllm, tfl
from mllm_compiler.dialects.mllm import ConstantOp, WeightOp
from mllm_compiler.dialects.types import element_of, extents, is_float
from mllm_compiler.passes.folded_weights import numbers_of
from mllm_compiler.passes.lower_to_tfl.builder import Builder
from mllm_compiler.passes.matching import made_by

NORMAL = np.finfo(np.float32).tiny
"""The least scale that XNNPACK takes."""


def quantized_linear(op: mllm.QuantizedLinearOp, b: Builder) -> SSAValue:
    """A product of real rows, which TFLite quantises, and a weight of codes."""
    rows = made_by(op.x, mllm.DynamicQuantizeOp)
    if rows is None:
        remedy = 'give a recipe with activations = "dynamic", or [values] for codes throughout'
        raise b.refused(op, "its activations have static scales", remedy)
    if rows.zero_point is None:
        raise b.refused(op, "its rows have no zero points", "run dynamic-rows before")
    weights = _weights(op, b, op.weight, op.weight_scale, op.weight_zero)
    return b.call(tfl.FullyConnectedOp, [rows.x, weights, op.bias], extents(op.result), f32)


def dequantize(op: mllm.DequantizeOp, b: Builder) -> SSAValue:
    """A weight of codes as reals, or codes that were looked up times their scales."""
    if made_by(op.x, WeightOp) is not None and len(extents(op.x)) == 2:
        weights = _weights(op, b, op.x, op.scale, op.zero_point)
        return b.call(tfl.DequantizeOp, [weights], extents(op.result), f32)
    x, scale = b.cast(op.x, f32), b.cast(op.scale, f32)
    if op.zero_point is not None:
        x = b.binary(tfl.SubOp, x, b.cast(op.zero_point, f32))
    if op.block_size is None:
        return b.mul(x, scale)
    dims, size = extents(x), op.block_size.value.data
    blocks = b.reshape(x, (*dims[:-1], dims[-1] // size, size))
    return b.reshape(b.mul(blocks, b.reshape(scale, (*extents(scale), 1))), dims)


def cast(op: mllm.CastOp, b: Builder) -> SSAValue:
    """Elements in another type; halves that are stored become reals as weights do."""
    element = element_of(op.result)
    stored = made_by(op.x, WeightOp) is not None or made_by(op.x, ConstantOp) is not None
    if stored and is_float(element_of(op.x)) and element == f32:
        return b.call(tfl.DequantizeOp, [op.x], extents(op.result), f32)
    return b.cast(op.x, element)


def _weights(
    op: mllm.QuantizedLinearOp | mllm.DequantizeOp,
    b: Builder,
    codes: SSAValue,
    scale: SSAValue,
    zero: SSAValue | None,
) -> SSAValue:
    """Codes with the scales of rows, or of blocks of them."""
    if zero is not None:
        raise b.refused(op, "its codes have zero points", "give a recipe with symmetric = true")
    numbers = numbers_of(scale, b.store)
    if numbers is None:
        raise b.refused(op, "its scales are computed", "give a recipe, whose scales are weights")
    rows, inputs = extents(codes)
    size = 0 if op.block_size is None else op.block_size.value.data
    blocks = inputs // size if size else 1
    if size and (size % 32 or inputs % size or str(element_of(codes)) != "i4"):
        why = f"{element_of(codes)} codes in blocks of {size}"
        raise b.refused(op, why, "give a recipe with rows, or 4 bits")
    wide = np.broadcast_to(numbers, (rows, blocks)).astype(np.float32)
    kept = np.maximum(wide, NORMAL)
    held = b.constant(kept.astype(np.float16) if size else kept)
    return b.call(
        tfl.PseudoQconstOp, [codes, held], (rows, inputs), element_of(codes), block_size=size
    )
