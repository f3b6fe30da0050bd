"""Attention and caches as nodes of the standard: `Attention` of opset 23, or its arithmetic."""

from __future__ import annotations

from typing import Final, cast

import ml_dtypes
from xdsl.dialects.builtin import i1
from xdsl.ir import SSAValue

from mllm_compiler.backends.onnx.builder import Builder, Value
from mllm_compiler.backends.onnx.entry import Inputs, one
from mllm_compiler.backends.onnx.linear import reduce
from mllm_compiler.backends.onnx.movement import count
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import (
    AttentionInterface,
    AttentionOp,
    CrossAttnOp,
    KvAppendOp,
    KvViewOp,
    ReduceKind,
    TokenImportanceOp,
)
from mllm_compiler.dialects.types import dtype_of, element_of, rank_of, shape_of

ATTENTION_SINCE: Final = 23
ONE: Final = Dim.const(1)


def split_heads(b: Builder, x: Value, source: SSAValue, heads: int) -> Value:
    """[B, T, H*D] -> [B, H, T, D]; a cache layout stays."""
    if rank_of(source) == 4:
        return x
    batch, tokens, width = shape_of(source)
    apart = b.reshape(x, (batch, tokens, width), (batch, tokens, heads, width // heads))
    return b.node("Transpose", apart, perm=[0, 2, 1, 3])


def _join_heads(b: Builder, x: Value, heads: int, result: SSAValue) -> Value:
    """[B, H, T, D] -> [B, T, H*D]."""
    batch, tokens, width = shape_of(result)
    apart = (batch, tokens, Dim.const(heads), width // heads)
    turned = b.node("Transpose", x, perm=[0, 2, 1, 3])
    return b.reshape(turned, apart, (batch, tokens, width))


def _is_operator(b: Builder, op: AttentionInterface) -> bool:
    """Whether the operator `Attention` computes what the op does.

    ONNX Runtime's answers 0 where the mask of a query is nowhere above the lowest number; `mllm`
    attends to all keys alike, and a bias that is given may have such rows.
    """
    biased = isinstance(op, AttentionOp) and op.bias is not None
    return b.opset >= ATTENTION_SINCE and not biased


def _attention(op: AttentionOp, b: Builder, inputs: Inputs) -> Value:
    rest = list(inputs[3:])
    key_mask = rest.pop(0) if op.key_mask is not None else None
    bias = rest.pop(0) if op.bias is not None else None
    queries, keys = shape_of(op.q)[1], op.keys
    window = None if op.window is None else op.window.value.data
    alone = window is None and key_mask is None
    whole = _is_operator(b, op) and bool(op.causal) and queries == keys and alone
    seen: list[Value] = []
    if op.causal and not whole:
        seen.append(_causal(b, queries, keys, window))
    if key_mask is not None and op.key_mask is not None:
        rows = queries if bias is None and not seen else ONE
        seen.append(_kept_keys(b, key_mask, op.key_mask, rows))
    return _attend(op, b, inputs, seen, bias, causal=whole)


def _cross_attn(op: CrossAttnOp, b: Builder, inputs: Inputs) -> Value:
    seen = [
        _kept_keys(b, m, s, shape_of(op.q)[1])
        for m, s in zip(inputs[3:], op.operands[3:], strict=True)
    ]
    return _attend(op, b, inputs, seen, None, causal=False)


def _attend(
    op: AttentionInterface,
    b: Builder,
    inputs: Inputs,
    seen: list[Value],
    bias: Value | None,
    *,
    causal: bool,
) -> Value:
    heads, kv_heads, scale = op.head_count, op.kv_head_count, op.scale_value
    q = split_heads(b, inputs[0], op.q, heads)
    k, v = (split_heads(b, x, s, kv_heads) for x, s in zip(inputs[1:3], (op.k, op.v), strict=True))
    mask = _added(op, b, seen)
    if bias is not None:
        mask = bias if mask is None else b.node("Add", bias, mask)
    if _is_operator(b, op):
        y = b.node("Attention", q, k, v, mask, scale=scale, is_causal=int(causal))
        return _join_heads(b, y, heads, op.result)
    k, v = (_repeated(b, x, s, op) for x, s in ((k, op.k), (v, op.v)))
    product = b.node("MatMul", q, b.node("Transpose", k, perm=[0, 1, 3, 2]))
    scores = b.node("Mul", product, b.scalar(scale, element_of(op.q)))
    scores = scores if mask is None else b.node("Add", scores, mask)
    y = b.node("MatMul", b.node("Softmax", scores, axis=-1), v)
    return _join_heads(b, y, heads, op.result)


def _repeated(b: Builder, x: Value, source: SSAValue, op: AttentionInterface) -> Value:
    """Each head of [B, Hkv, S, D] as often as queries share it: [B, H, S, D]."""
    group = op.head_count // op.kv_head_count
    if group == 1:
        return x

    def make() -> Value:
        apart = b.node("Unsqueeze", x, b.integers(2))
        wide = b.node("Expand", apart, b.integers(1, 1, group, 1, 1))
        dims = shape_of(source)
        size = dims[3] if len(dims) == 4 else dims[2] // op.kv_head_count
        after = (dims[0], Dim.const(op.head_count), op.keys, size)
        before = (dims[0], Dim.const(op.kv_head_count), Dim.const(group), op.keys, size)
        return b.reshape(wide, before, after)

    return b.once(("repeated", x, group), make)


def _causal(b: Builder, queries: Dim, keys: Dim, window: int | None) -> Value:
    """The keys s <= t + (S - T), and within a window: [1, 1, T, S] of booleans."""

    def make() -> Value:
        column = b.node("Unsqueeze", count(b, Dim(), keys), b.integers(0))
        row = b.node("Unsqueeze", count(b, keys - queries, queries), b.integers(1))
        seen = b.node("LessOrEqual", column, row)
        if window is not None:
            first = b.node("Unsqueeze", count(b, keys - queries - window, queries), b.integers(1))
            seen = b.node("And", seen, b.node("Greater", column, first))
        return b.node("Unsqueeze", seen, b.integers(0, 1))

    return b.once(("causal", queries, keys, window), make)


def _kept_keys(b: Builder, mask: Value, source: SSAValue, rows: Dim) -> Value:
    """The keys that a mask [B, S] leaves: [B, 1, 1, S] of booleans.

    The operator wants as many rows as there are queries, where no other mask has them.
    """

    def make() -> Value:
        kept = mask if element_of(source) == i1 else b.cast(mask, i1)
        row = b.node("Unsqueeze", kept, b.integers(1, 2))
        alone = rows != ONE and b.opset >= ATTENTION_SINCE
        return b.node("Expand", row, b.dims([ONE, ONE, rows, ONE])) if alone else row

    return b.once(("kept", mask, rows), make)


def _added(op: AttentionInterface, b: Builder, seen: list[Value]) -> Value | None:
    """What excludes keys when it is added to scores; finite, so that no row is only NaN."""
    if not seen:
        return None
    element = element_of(op.q)
    lowest = cast(float, ml_dtypes.finfo(dtype_of(element)).min)
    if _is_operator(b, op):
        # The operator may answer 0 where it finds nothing but the lowest number.
        lowest /= 2

    def make() -> Value:
        both = seen[0] if len(seen) == 1 else b.node("And", *seen)
        return b.node("Where", both, b.scalar(0.0, element), b.scalar(lowest, element))

    return b.once(("added", element, *seen), make)


def _kv_append(op: KvAppendOp, b: Builder, inputs: Inputs) -> Value:
    past, new = inputs
    return b.node("Concat", past, split_heads(b, new, op.new, op.kv_heads.value.data), axis=2)


def _kv_view(op: KvViewOp, b: Builder, inputs: Inputs) -> Value:
    pages, table = inputs
    batch, heads, length, size = shape_of(op.result)
    chosen = b.node("Gather", pages, table, axis=0)
    turned = b.node("Transpose", chosen, perm=[0, 2, 1, 3, 4])
    places = shape_of(op.table)[1] * shape_of(op.pages)[2]
    before = (batch, heads, shape_of(op.table)[1], shape_of(op.pages)[2], size)
    flat = b.reshape(turned, before, (batch, heads, places, size))
    return b.node("Slice", flat, b.integers(0), b.dims([length]), b.integers(2))


def _token_importance(op: TokenImportanceOp, b: Builder, inputs: Inputs) -> Value:
    heads, element = op.heads.value.data, element_of(op.q)
    q, k = (split_heads(b, x, s, heads) for x, s in zip(inputs, op.operands, strict=True))
    first = b.node("Slice", q, b.integers(0), b.integers(1), b.integers(2))
    scores = b.node("MatMul", first, b.node("Transpose", k, perm=[0, 1, 3, 2]))
    width = shape_of(op.q)[2].as_int()
    assert width is not None
    scaled = b.node("Mul", scores, b.scalar((width // heads) ** -0.5, element))
    shares = b.node("Softmax", scaled, axis=-1)
    return reduce(b, ReduceKind.MEAN, shares, (1, 2), keepdims=False)


EXPORTERS = dict(
    [
        one(AttentionOp, _attention),
        one(CrossAttnOp, _cross_attn),
        one(KvAppendOp, _kv_append),
        one(KvViewOp, _kv_view),
        one(TokenImportanceOp, _token_importance),
    ]
)
"""Op class to exporter."""
