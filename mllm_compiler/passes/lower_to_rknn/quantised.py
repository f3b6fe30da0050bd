"""Products and tables of codes: the toolkit is given the reals that they stand for.

It quantises by itself, and scales of others cannot be given to it: what a recipe chose survives as
far as the toolkit's own codes of a weight, which it finds among those reals, are the recipe's.
"""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import f32
from xdsl.ir import SSAValue

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.mllm import BlobAttr, ConstantOp, WeightOp
from mllm_compiler.dialects.types import element_of, extents
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.folded_weights import numbers_of
from mllm_compiler.passes.graphs import location_of
from mllm_compiler.passes.lower_to_rknn.builder import Builder
from mllm_compiler.passes.matching import made_by

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


def quantized_linear(op: mllm.QuantizedLinearOp, b: Builder) -> SSAValue:
    """A product of the reals whose codes the op reads."""
    codes = made_by(op.x, mllm.QuantizeOp)
    if codes is None:
        raise _refused(op, "its activations are quantised as it runs", 'activations = "static"')
    size = None if op.block_size is None else op.block_size.value.data
    weight = _reals(op, b, (op.weight, op.weight_scale, op.weight_zero), size)
    return b.linear(codes.x, weight, op.bias)


def dequantize(op: mllm.DequantizeOp, b: Builder) -> SSAValue:
    """A weight of codes as reals; of codes that were looked up, a look-up of the reals."""
    size = None if op.block_size is None else op.block_size.value.data
    parts = (op.x, op.scale, op.zero_point)
    found = made_by(op.x, mllm.EmbeddingOp)
    if found is None:
        return _reals(op, b, parts, size)
    tables = [None if p is None else made_by(p, mllm.EmbeddingOp) for p in parts]
    values = [None if t is None else t.table for t in tables]
    assert values[0] is not None
    assert values[1] is not None
    table = _reals(op, b, (values[0], values[1], values[2]), size)
    return b.call("Gather", [table, found.ids], extents(op.result), f32, axis=0)


def embedding(op: mllm.EmbeddingOp, b: Builder) -> SSAValue | None:
    """A look-up; one of codes, scales or halves is left to who makes reals of it."""
    if element_of(op.table) != f32 or _is_decoded(op.result):
        return None
    return b.call("Gather", [op.table, op.ids], extents(op.result), f32, axis=0)


def cast(op: mllm.CastOp, b: Builder) -> SSAValue:
    """Elements in another type; of halves that are stored, their reals, or a look-up of those."""
    if element_of(op.result) != f32:
        return b.cast(op.x, element_of(op.result))
    if (found := made_by(op.x, mllm.EmbeddingOp)) is not None:
        return b.call("Gather", [_stored(b, found.table), found.ids], extents(op.x), f32, axis=0)
    if made_by(op.x, WeightOp) is not None or made_by(op.x, ConstantOp) is not None:
        return _stored(b, op.x)
    return b.cast(op.x, f32)


def _is_decoded(value: SSAValue) -> bool:
    return any(isinstance(use.operation, mllm.DequantizeOp) for use in value.uses)


def left(op: mllm.QuantizeOp, b: Builder) -> None:
    """Left until the products that read the codes read the reals; then nothing uses it."""


def _stored(b: Builder, value: SSAValue) -> SSAValue:
    """A stored value in f32."""

    def make() -> SSAValue:
        numbers = numbers_of(value, b.store)
        assert numbers is not None
        return _kept(b, numbers, value)

    return b.once(("stored", value), make)


def _reals(
    op: mllm.QuantizedLinearOp | mllm.DequantizeOp,
    b: Builder,
    parts: tuple[SSAValue, SSAValue, SSAValue | None],
    size: int | None,
) -> SSAValue:
    """What codes [N, K], scales and zero points mean."""

    def make() -> SSAValue:
        codes, scale, zero = (None if p is None else numbers_of(p, b.store) for p in parts)
        if codes is None or scale is None or (zero is None and parts[2] is not None):
            raise _refused(op, "its codes or scales are computed", "codes that are weights")
        blocks = codes.reshape(*codes.shape[:-1], -1, size or codes.shape[-1])
        if zero is not None:
            blocks = blocks - _wide(zero, blocks)
        reals = (blocks * _wide(scale, blocks)).reshape(codes.shape)
        return _kept(b, reals.astype(np.float32, copy=False), parts[0])

    return b.once(("reals", *parts), make)


def _wide(parameter: Floats, blocks: Floats) -> Floats:
    """Scales or zero points [N, blocks] beside codes [N, blocks, size]."""
    return parameter.reshape(*parameter.shape, *(1,) * (blocks.ndim - parameter.ndim))


def _kept(b: Builder, numbers: Floats, source: SSAValue) -> SSAValue:
    """A weight of other numbers, under the name of the one that it stands for."""
    weight = made_by(source, WeightOp)
    blob = BlobAttr.of(b.store.add(numbers), f32, numbers.shape)
    made = WeightOp(blob, weight.weight_name.data if weight and weight.weight_name else None)
    b.insert(made)
    b.store.release()
    return made.result


def _refused(op: mllm.QuantizedLinearOp | mllm.DequantizeOp, why: str, remedy: str) -> CompileError:
    return CompileError(
        "MLC-R001",
        f"'{op.name}' has no home on 'rknn': {why}",
        location=location_of(op),
        remedy=f"give a recipe with {remedy}",
    )
