"""Positions and the choice of tokens as nodes of the standard."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import f32, i64

from mllm_compiler.backends.onnx.builder import Builder, Value
from mllm_compiler.backends.onnx.entry import Inputs, one, several
from mllm_compiler.backends.onnx.movement import TO_THE_END, count
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import AlibiOp, RopeOp, TokenGatherOp, TopKOp
from mllm_compiler.dialects.types import dtype_of, element_of, shape_of
from mllm_compiler.reference.mllm_attention import alibi_slopes


def _rope(op: RopeOp, b: Builder, inputs: Inputs) -> Value:
    x, positions, inv_freq = inputs
    batch, tokens, width = shape_of(op.x)
    heads, half = op.heads.value.data, shape_of(op.inv_freq)[0]
    size = width // heads
    apart = (batch, tokens, Dim.const(heads), size)
    split = b.reshape(x, (batch, tokens, width), apart)
    first = split if size == half * 2 else _cut(b, split, 0, half * 2)
    cos, sin = _tables(b, op, positions, inv_freq)
    turned = (
        _pairs(b, first, cos, sin, apart, half)
        if op.interleaved
        else (_halves(b, first, cos, sin, half))
    )
    if size != half * 2:
        turned = b.node("Concat", turned, _cut(b, split, half * 2, size), axis=-1)
    return b.reshape(turned, apart, (batch, tokens, width))


def _tables(b: Builder, op: RopeOp, positions: Value, inv_freq: Value) -> tuple[Value, Value]:
    """Cosines and sines, [B, T, 1, R/2], or [B, T, 1, R] where pairs stand in halves."""
    element, twice = element_of(op.x), not op.interleaved

    def make(kind: str) -> Value:
        places = b.node("Unsqueeze", b.cast(positions, f32), b.integers(2))
        frequencies = inv_freq if element_of(op.inv_freq) == f32 else b.cast(inv_freq, f32)
        key = (positions, inv_freq)
        angles = b.once(("angles", *key), lambda: b.node("Mul", places, frequencies))
        if twice:
            single = angles
            angles = b.once(
                ("angles twice", *key), lambda: b.node("Concat", single, single, axis=-1)
            )
        wave = b.node("Unsqueeze", b.node(kind, angles), b.integers(2))
        return wave if element == f32 else b.cast(wave, element)

    key = (positions, inv_freq, twice, element)
    cos, sin = (b.once((k, *key), lambda k=k: make(k)) for k in ("Cos", "Sin"))
    return cos, sin


def _halves(b: Builder, x: Value, cos: Value, sin: Value, half: Dim) -> Value:
    low, high = _cut(b, x, 0, half), _cut(b, x, half, TO_THE_END)
    turned = b.node("Concat", b.node("Neg", high), low, axis=-1)
    return b.node("Add", b.node("Mul", x, cos), b.node("Mul", turned, sin))


def _pairs(b: Builder, x: Value, cos: Value, sin: Value, apart: Sequence[Dim], half: Dim) -> Value:
    even, odd = (_cut(b, x, at, TO_THE_END, step=2) for at in (0, 1))
    real = b.node("Sub", b.node("Mul", even, cos), b.node("Mul", odd, sin))
    imaginary = b.node("Add", b.node("Mul", odd, cos), b.node("Mul", even, sin))
    columns = [b.node("Unsqueeze", v, b.integers(4)) for v in (real, imaginary)]
    joined = b.node("Concat", *columns, axis=4)
    before = (*apart[:3], half, Dim.const(2))
    return b.reshape(joined, before, (*apart[:3], half * 2))


def _cut(b: Builder, x: Value, start: Dim | int, end: Dim | int, *, step: int = 1) -> Value:
    """Elements of the last axis."""
    return b.node("Slice", x, b.dims([start]), b.dims([end]), b.integers(-1), b.integers(step))


def _alibi(op: AlibiOp, b: Builder, inputs: Inputs) -> Value:
    queries, keys = shape_of(op.result)[2:]
    element = element_of(op.result)
    column = b.node("Unsqueeze", count(b, Dim(), keys), b.integers(0))
    row = b.node("Unsqueeze", count(b, keys - queries, queries), b.integers(1))
    distance = b.cast(b.node("Sub", column, row), element)
    slopes = alibi_slopes(op.heads.value.data).reshape(1, -1, 1, 1)
    return b.node("Mul", distance, b.constant(slopes.astype(dtype_of(element))))


def _top_k(op: TopKOp, b: Builder, inputs: Inputs) -> Sequence[Value]:
    axis = op.axis.value.data
    size = b.dims([shape_of(op.values)[axis]])
    largest = int(not op.smallest)
    values, indices = b.several("TopK", 2, *inputs, size, axis=axis, largest=largest)
    if not op.by_index:
        return values, indices
    ordered, _ = b.several("TopK", 2, indices, size, axis=axis, largest=0)
    return b.node("GatherElements", *inputs, ordered, axis=axis), ordered


def _token_gather(op: TokenGatherOp, b: Builder, inputs: Inputs) -> Value:
    x, indices = inputs
    if element_of(op.indices) != i64:
        indices = b.cast(indices, i64)
    batch, kept, width = shape_of(op.result)
    column = b.node("Unsqueeze", indices, b.integers(2))
    wide = b.expand(column, (batch, kept, Dim.const(1)), (batch, kept, width))
    return b.node("GatherElements", x, wide, axis=1)


EXPORTERS = dict(
    [
        one(RopeOp, _rope),
        one(AlibiOp, _alibi),
        several(TopKOp, _top_k),
        one(TokenGatherOp, _token_gather),
    ]
)
"""Op class to exporter."""
