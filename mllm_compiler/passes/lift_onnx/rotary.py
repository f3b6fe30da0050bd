"""`RotaryEmbedding`, of the standard and of ONNX Runtime, as arithmetic that `lift-rope` reads."""

from __future__ import annotations

from xdsl.ir import SSAValue

from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import (
    BinaryKind,
    ConcatOp,
    EmbeddingOp,
    IotaOp,
    SliceOp,
)
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.dialects.types import rank_of, shape_of
from mllm_compiler.passes.lift_onnx.emit import Converter, Emit
from mllm_compiler.passes.lift_onnx.linear import integer_attribute, number_attribute


def rotate(emit: Emit, x: SSAValue, cos: SSAValue, sin: SSAValue, *, interleaved: bool) -> SSAValue:
    """The first dims of x [*, *, *, D] rotated; cos and sin are [*, *, *, R/2]."""
    dims, half = shape_of(x), shape_of(cos)[-1]
    size, width = dims[-1], half * 2
    first = x if size == width else _cut(emit, x, Dim(), width)
    if interleaved:
        a, b = (_cut(emit, first, Dim.const(i), half, 2) for i in (0, 1))
    else:
        a, b = _cut(emit, first, Dim(), half), _cut(emit, first, half, half)
    real = _of_products(emit, BinaryKind.SUB, (a, cos), (b, sin))
    imaginary = _of_products(emit, BinaryKind.ADD, (b, cos), (a, sin))
    if interleaved:
        apart = (*dims[:-1], half, Dim.const(1))
        pairs = emit(ConcatOp([emit.reshape(v, apart) for v in (real, imaginary)], 4))
        turned = emit.reshape(pairs, (*dims[:-1], width))
    else:
        turned = emit(ConcatOp([real, imaginary], 3))
    if size == width:
        return turned
    return emit(ConcatOp([turned, _cut(emit, x, width, size - width)], 3))


def _of_products(
    emit: Emit, kind: BinaryKind, a: tuple[SSAValue, SSAValue], b: tuple[SSAValue, SSAValue]
) -> SSAValue:
    products = [emit.binary(BinaryKind.MUL, *pair) for pair in (a, b)]
    return emit.binary(kind, products[0], products[1])


def _cut(emit: Emit, x: SSAValue, start: Dim, count: Dim, step: int = 1) -> SSAValue:
    """Elements of the last axis."""
    rank = rank_of(x)
    starts = [*[Dim()] * (rank - 1), start]
    return emit(SliceOp(x, starts, (*shape_of(x)[:-1], count), [*[1] * (rank - 1), step]))


def rows(emit: Emit, table: SSAValue, positions: SSAValue) -> SSAValue:
    """Rows of a cache by positions [B, T]: [B, T, R/2]."""
    return emit(EmbeddingOp(table, positions))


def rotated_heads(
    emit: Emit,
    x: SSAValue,
    tables: tuple[SSAValue, SSAValue],
    heads: int,
    *,
    interleaved: bool,
) -> SSAValue:
    """[B, T, H*D] rotated by tables [B, T, R/2]."""
    batch, tokens, width = shape_of(x)
    apart = emit.reshape(x, (batch, tokens, heads, width // heads))
    cos, sin = (_beside_heads(emit, t, tokens_first=True) for t in tables)
    turned = rotate(emit, apart, cos, sin, interleaved=interleaved)
    return emit.reshape(turned, (batch, tokens, width))


def _beside_heads(emit: Emit, table: SSAValue, *, tokens_first: bool) -> SSAValue:
    batch, tokens, half = shape_of(table)
    one = Dim.const(1)
    dims = (batch, tokens, one, half) if tokens_first else (batch, one, tokens, half)
    return emit.reshape(table, dims)


def _rotated(
    op: OnnxOp, emit: Emit, tables: tuple[SSAValue, SSAValue], heads: int
) -> SSAValue | None:
    """The result for x [B, T, H*D] or [B, H, T, D]."""
    x, interleaved = op.operands[0], bool(integer_attribute(op, "interleaved"))
    half = shape_of(tables[0])[-1].as_int()
    size = shape_of(x)[-1].as_int()
    if half is None or size is None or any(rank_of(t) != 3 for t in tables):
        return None
    if rank_of(x) == 4:
        cos, sin = (_beside_heads(emit, t, tokens_first=False) for t in tables)
        return rotate(emit, x, cos, sin, interleaved=interleaved)
    heads = heads or size // (2 * half)
    if rank_of(x) != 3 or size % heads or 2 * half > size // heads:
        return None
    return rotated_heads(emit, x, tables, heads, interleaved=interleaved)


def _standard(op: OnnxOp, emit: Emit) -> SSAValue | None:
    _, cos, sin = op.operands[:3]
    positions = op.input(3)
    if positions is not None:
        if rank_of(positions) != 2 or rank_of(cos) != 2:
            return None
        cos, sin = rows(emit, cos, positions), rows(emit, sin, positions)
    return _rotated(op, emit, (cos, sin), integer_attribute(op, "num_heads"))


def _microsoft(op: OnnxOp, emit: Emit) -> SSAValue | None:
    x, positions, cos, sin = op.operands
    if integer_attribute(op, "is_packed_batching") or number_attribute(op, "scale", 1.0) != 1.0:
        return None
    if rank_of(positions) == 1:
        tokens = shape_of(x)[1 if rank_of(x) == 3 else 2]
        steps = emit(IotaOp(tokens))
        positions = emit.reshape(emit.binary(BinaryKind.ADD, steps, positions), (1, tokens))
    tables = rows(emit, cos, positions), rows(emit, sin, positions)
    return _rotated(op, emit, tables, integer_attribute(op, "num_heads"))


CONVERTERS: dict[str, Converter] = {
    "RotaryEmbedding": _standard,
    "microsoft.RotaryEmbedding": _microsoft,
}
"""Operator name to converter."""
