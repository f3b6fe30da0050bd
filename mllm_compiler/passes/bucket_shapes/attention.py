"""Padded forms of attention, positions and caches."""

from __future__ import annotations

from itertools import pairwise

from xdsl.dialects.builtin import i1
from xdsl.ir import Operation

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import AttentionInterface, BinaryKind, CompareKind
from mllm_compiler.dialects.mllm.quant import value_of
from mllm_compiler.dialects.types import element_of, shape_of
from mllm_compiler.passes.attention_operands import with_operands
from mllm_compiler.passes.bucket_shapes.padded import Padded
from mllm_compiler.passes.bucket_shapes.rows import static


def attention(op: mllm.AttentionOp, p: Padded) -> None:
    """A mask excludes padded keys, but those behind the last token, which no causal query sees."""
    _attend(op, p, p.dims(op.q)[1], _keys(op, p))


def cached_attention(op: mllm.CachedAttentionOp, p: Padded) -> None:
    """Nothing stands between the past and the new tokens, whose padding is excluded."""
    queries, past = p.dims(op.q)[1], p.dims(op.past_k)[2]
    for new, old in ((op.k, op.past_k), (op.v, op.past_v)):
        if (p.dims(new)[1], p.dims(old)[2]) != (queries, past):
            raise p.refusal(op, "keys and values may pad differently")
        joined(op, p, [past, queries])
        static(op, p, (*p.dims(new)[2:], p.dims(old)[1], p.dims(old)[3]))
    static(op, p, p.dims(op.q)[2:])
    if value_of(op.cache_bits) == 4 and p.offset(past) != Dim():
        raise p.refusal(op, "padding would move the pages of its cache")
    _attend(op, p, queries, past + queries)


def _attend(
    op: mllm.AttentionOp | mllm.CachedAttentionOp, p: Padded, queries: Dim, keys: Dim
) -> None:
    causal = bool(op.causal.value.data)
    if causal:
        _same_diagonal(op, p, queries, keys)
    if op.bias is not None:
        for dim, met in zip(p.dims(op.bias)[2:], (queries, keys), strict=True):
            if dim != met and dim.as_int() != 1:
                raise p.refusal(op, f"its bias has the extent {dim} where {met} is needed")
    if keys.symbols() and (not causal or p.offset(keys) != Dim()):
        _exclude(op, p, keys)


def cross_attn(op: mllm.CrossAttnOp, p: Padded) -> None:
    """A mask excludes the padding of the other stream."""
    keys = _keys(op, p)
    if keys.symbols():
        _exclude(op, p, keys)


def _keys(op: AttentionInterface, p: Padded) -> Dim:
    k, v = p.dims(op.k), p.dims(op.v)
    keys = k[1 if len(k) == 3 else 2]
    if keys != v[1 if len(v) == 3 else 2]:
        raise p.refusal(op, "keys and values may pad differently")
    for dims in (p.dims(op.q), k, v):
        static(op, p, dims[2:] if len(dims) == 3 else (dims[1], dims[3]))
    return keys


def _same_diagonal(op: Operation, p: Padded, queries: Dim, keys: Dim) -> None:
    """Query t sees the keys up to t + (S - T), with padding too."""
    shift = p.offset(keys) - p.offset(queries) + keys - queries
    if shift.as_int() != p.extent(keys) - p.extent(queries):
        raise p.refusal(op, f"padding moves {queries} queries against {keys} keys")


def _exclude(op: AttentionInterface | mllm.CachedAttentionOp, p: Padded, keys: Dim) -> None:
    mask = p.mask(keys)
    if op.key_mask is not None:
        given = op.key_mask
        if element_of(given) != i1:
            zero = p.scalar(0, element_of(given))
            given = p.insert(mllm.CompareOp(CompareKind.NE, given, zero), op)
        mask = p.insert(mllm.BinaryOp(BinaryKind.AND, given, mask), op)
    else:
        mask = p.insert(mllm.BroadcastOp(mask, (shape_of(op.q)[0], p.extent(keys))), op)
    made = with_operands(op, key_mask=mask)
    p.insert(made, op)
    p.replace(op, *made.results)


def rope(op: mllm.RopeOp, p: Padded) -> None:
    """Each token has its position."""
    if p.dims(op.positions)[1] != p.dims(op.x)[1]:
        raise p.refusal(op, "tokens and positions may pad differently")
    static(op, p, (p.dims(op.x)[2], *p.dims(op.inv_freq)))


def qkv(op: mllm.QkvOp, p: Padded) -> None:
    """No symbol is summed over, and each token has its position."""
    static(op, p, (p.dims(op.x)[2], *p.dims(op.weight)))
    if op.positions is not None and p.dims(op.positions)[1] != p.dims(op.x)[1]:
        raise p.refusal(op, "tokens and positions may pad differently")


def alibi(op: mllm.AlibiOp, p: Padded) -> None:
    """The distance of a query and a key stays."""
    _, _, queries, keys = p.dims(op.result)
    _same_diagonal(op, p, queries, keys)


def kv_append(op: mllm.KvAppendOp, p: Padded) -> None:
    """Nothing stands between the past and the new tokens."""
    joined(op, p, [p.dims(op.past)[2], p.dims(op.new)[1]])


def joined(op: Operation, p: Padded, dims: list[Dim]) -> None:
    """Refuses padding between parts that are joined.

    Raises:
        CompileError: MLC-P002.
    """
    for before, after in pairwise(dims):
        end = p.offset(before) + before
        if end.as_int() != p.extent(before) or p.offset(after) != Dim():
            raise p.refusal(op, f"padding would stand between {before} and {after} elements")


def token_gather(op: mllm.TokenGatherOp, p: Padded) -> None:
    """Padded indices read the first token."""
    tokens = p.dims(op.x)[1]
    if p.offset(tokens) != Dim():
        raise p.refusal(op, f"padding stands before the elements along {tokens}")
    op.operands[1] = p.filled(op.indices, 0, op)
