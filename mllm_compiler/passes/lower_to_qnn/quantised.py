"""Weights of codes as static tensors of QNN; tables of codes as the reals that they stand for."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import f32
from xdsl.ir import SSAValue

from mllm_compiler.dialects import mllm, qnn
from mllm_compiler.dialects.mllm import WeightOp
from mllm_compiler.dialects.types import element_of, extents, i4, i8, is_float
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.folded_weights import Floats, numbers_of
from mllm_compiler.passes.graphs import location_of
from mllm_compiler.passes.lower_to_qnn.builder import Builder
from mllm_compiler.passes.matching import made_by

MULTIPLES = 15
"""The largest multiple of a row's scale that the scale of a block may be."""

SLACK = 1e-3
"""How far above a multiple a scale may lie and still be it."""


def quantized_linear(op: mllm.QuantizedLinearOp, b: Builder) -> SSAValue:
    """No operator of QNN quantises as the model runs."""
    raise _refused(op, "it quantises activations", 'activations = "float", and [values]')


def dequantize(op: mllm.DequantizeOp, b: Builder) -> SSAValue:
    """A weight of codes with the scales of rows, or of blocks; of a look-up, one of reals."""
    if (found := made_by(op.x, mllm.EmbeddingOp)) is not None:
        return b.gather(_reals(op, b), found.ids, 0)
    if op.zero_point is not None:
        raise _refused(op, "its codes have zero points", "symmetric = true")
    if element_of(op.x) not in (i8, i4) or made_by(op.x, WeightOp) is None:
        raise _refused(op, f"it has {element_of(op.x)} codes", "8 or 4 bits")
    scale, (rows, inputs) = _numbers(op, b, op.scale), extents(op.x)
    size = 0 if op.block_size is None else op.block_size.value.data
    if size == 0 or size == inputs:
        scales = np.broadcast_to(scale.reshape(-1), rows).astype(np.float32)
        parts = [op.x, b.constant(scales)]
        return b.call(qnn.StaticTensorOp, parts, (rows, inputs), element_of(op.x), axis=0)
    if element_of(op.x) != i4:
        raise _refused(op, f"{element_of(op.x)} codes in blocks", "rows, or 4 bits")
    codes, scales = _expanded(_numbers(op, b, op.x), scale, size)
    parts = [b.weight(codes.astype(ml_dtypes.int4), op.x), b.constant(scales)]
    kind = {"axis": 0, "block_size": size}
    return b.call(qnn.StaticTensorOp, parts, (rows, inputs), i4, **kind)


def embedding(op: mllm.EmbeddingOp, b: Builder) -> SSAValue | None:
    """A look-up; one of codes is left to who makes reals of them."""
    if any(isinstance(use.operation, mllm.DequantizeOp) for use in op.result.uses):
        return None
    return b.gather(op.table, op.ids, 0)


def cast(op: mllm.CastOp, b: Builder) -> SSAValue:
    """Elements in another type; halves stay what they are, as HTP computes on them."""
    if is_float(element_of(op.x)) and element_of(op.result) == f32:
        return op.x
    return b.cast(op.x, element_of(op.result))


def _expanded(codes: Floats, scale: Floats, size: int) -> tuple[Floats, Floats]:
    """Codes in blocks whose scales are whole multiples of one for the row, and the scales.

    Codes are rounded anew where the scale of their block moves.
    """
    row = scale.max(axis=1, keepdims=True) / MULTIPLES
    made = np.clip(np.ceil(scale / row - SLACK), 1, MULTIPLES).astype(np.float32) * row
    wide, before = np.repeat(made, size, 1), np.repeat(scale, size, 1)
    return np.clip(np.rint(codes * before / wide), -8, 7), made.astype(np.float32)


def _reals(op: mllm.DequantizeOp, b: Builder) -> SSAValue:
    """The table whose rows of codes are looked up."""
    parts = [made_by(v, mllm.EmbeddingOp) for v in op.operands]
    codes, scale, *zero = (_numbers(op, b, None if p is None else p.table) for p in parts)
    size = codes.shape[1] if op.block_size is None else op.block_size.value.data
    wide = [np.repeat(x.reshape(len(codes), -1), size, 1) for x in (scale, *zero)]
    shifted = codes - wide[1] if zero else codes
    found = parts[0]
    assert found is not None
    return b.weight((shifted * wide[0]).astype(np.float32), found.table)


def _numbers(op: mllm.DequantizeOp, b: Builder, value: SSAValue | None) -> Floats:
    found = None if value is None else numbers_of(value, b.store)
    if found is None:
        raise _refused(op, "its codes or scales are computed", "codes that are weights")
    return found


def _refused(op: mllm.QuantizedLinearOp | mllm.DequantizeOp, why: str, remedy: str) -> CompileError:
    return CompileError(
        "MLC-R001",
        f"'{op.name}' has no home on 'qnn': {why}",
        location=location_of(op),
        remedy=f"give a recipe with {remedy}",
    )
