"""What fused ops are made of: for targets and formats that have the parts alone.

    %q, %k, %v = mllm.qkv %x, %w rope(%p : tensor<1x3xi64>) inv_freq(%f : tensor<2xf32>) ...
->
    %0 = mllm.linear %x, %w : ...
    %1 = mllm.slice %0 {starts = #mllm.dims<"0", "0", "0">, ...} : ...
    %2 = mllm.slice %0 {starts = #mllm.dims<"0", "0", "16">, ...} : ...
    %v = mllm.slice %0 {starts = #mllm.dims<"0", "0", "24">, ...} : ...
    %q = mllm.rope %1, %p, %f {heads = 4 : i64} : ...
    %k = mllm.rope %2, %p, %f {heads = 2 : i64} : ...
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from xdsl.dialects.builtin import f16, i8
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import BinaryKind, NormKind, ReduceKind, UnaryKind
from mllm_compiler.dialects.mllm.quant import value_of
from mllm_compiler.dialects.types import dtype_of, element_of, shape_of
from mllm_compiler.passes.graphs import block_of
from mllm_compiler.reference import kv_cache

HALF = 16
"""Bits of a cache that holds f16."""


@dataclass
class Parts:
    """The ops that a fused op is made of, in order, and the values in place of its results."""

    ops: list[Operation] = field(default_factory=list[Operation])
    results: list[SSAValue] = field(default_factory=list[SSAValue])

    def add(self, op: Operation) -> SSAValue:
        """Puts an op behind those that are there; the answer is its first result."""
        self.ops.append(op)
        return op.results[0]


def _qkv(op: mllm.QkvOp, parts: Parts) -> None:
    whole = parts.add(mllm.LinearOp(op.x, op.weight, op.bias))
    start = Dim.const(0)
    for part, heads in zip(op.results, (op.head_count, op.kv_head_count, 0), strict=True):
        width = shape_of(part)[2]
        value = parts.add(mllm.SliceOp(whole, (0, 0, start), (*shape_of(whole)[:2], width)))
        start = start + width
        if heads and op.positions is not None and op.inv_freq is not None:
            paired, turn = bool(op.interleaved), (op.positions, op.inv_freq)
            value = parts.add(mllm.RopeOp(value, *turn, heads=heads, interleaved=paired))
        parts.results.append(value)


def _activated_linear(op: mllm.ActivatedLinearOp, parts: Parts) -> None:
    y = parts.add(mllm.LinearOp(op.x, op.weight, op.bias))
    parts.results.append(parts.add(mllm.UnaryOp(UnaryKind(op.activation.data), y)))


def _residual_norm(op: mllm.ResidualNormOp, parts: Parts) -> None:
    total = parts.add(mllm.BinaryOp(BinaryKind.ADD, op.x, op.residual))
    parts.results += [total, _norm(op, total, parts)]


def _norm_gated_mlp(op: mllm.NormGatedMlpOp, parts: Parts) -> None:
    rows = _norm(op, op.x, parts)
    block = mllm.GatedMlpOp(op.activation.data, rows, op.gate, op.up, op.down)
    parts.results.append(parts.add(block))


def _norm(op: mllm.ResidualNormOp | mllm.NormGatedMlpOp, x: SSAValue, parts: Parts) -> SSAValue:
    epsilon = op.epsilon.value.data
    if op.kind.data is NormKind.LAYER:
        return parts.add(mllm.LayerNormOp(x, op.weight, op.bias, epsilon=epsilon))
    assert op.weight is not None
    return parts.add(mllm.RmsNormOp(x, op.weight, epsilon=epsilon))


def _cached_attention(op: mllm.CachedAttentionOp, parts: Parts) -> None:
    k, v = op.k, op.v
    if value_of(op.cache_bits) == HALF:
        k, v = (_as(_as(new, f16, parts), element_of(new), parts) for new in (k, v))
    if op.k_scale is not None:
        k = _eight_bits(op, k, op.k_scale, parts)
        v = _eight_bits(op, v, None, parts)
    key = parts.add(mllm.KvAppendOp(op.past_k, k, kv_heads=op.kv_head_count))
    value = parts.add(mllm.KvAppendOp(op.past_v, v, kv_heads=op.kv_head_count))
    y = mllm.AttentionOp(
        op.q,
        key,
        value,
        heads=op.head_count,
        kv_heads=op.kv_head_count,
        scale=op.scale_value,
        causal=bool(op.causal),
        window=op.window.value.data if op.window else None,
        key_mask=op.key_mask,
        bias=op.bias,
    )
    parts.results += [parts.add(y), key, value]


def _eight_bits(
    op: mllm.CachedAttentionOp, new: SSAValue, channels: SSAValue | None, parts: Parts
) -> SSAValue:
    """What codes of 8 bits mean of new tokens, whose channels may have scales besides."""
    batch, tokens, width = shape_of(new)
    heads, element = Dim.const(op.kv_head_count), element_of(new)
    size = shape_of(op.past_v if channels is None else op.past_k)[3]
    x = parts.add(mllm.ReshapeOp(new, (batch, tokens, heads, size)))
    if channels is not None:
        channels = _as(channels, element, parts)
        x = parts.add(mllm.BinaryOp(BinaryKind.DIV, x, channels))
    sizes = parts.add(mllm.UnaryOp(UnaryKind.ABS, x))
    scale = parts.add(mllm.ReduceOp(ReduceKind.MAX, sizes, [3], keepdims=True))
    for kind, number in (
        (BinaryKind.DIV, 127),
        (BinaryKind.MAX, kv_cache.LEAST),
        (BinaryKind.MIN, kv_cache.LARGEST),
    ):
        constant = mllm.ConstantOp.of(np.array(number, dtype_of(element)))
        scale = parts.add(mllm.BinaryOp(kind, scale, parts.add(constant)))
    scale = _as(_as(scale, f16, parts), element, parts)
    codes = parts.add(mllm.QuantizeOp(x, scale, None, i8))
    y = parts.add(mllm.DequantizeOp(codes, scale, element=element))
    if channels is not None:
        y = parts.add(mllm.BinaryOp(BinaryKind.MUL, y, channels))
    return parts.add(mllm.ReshapeOp(y, (batch, tokens, width)))


def _as(x: SSAValue, element: Attribute, parts: Parts) -> SSAValue:
    return x if element_of(x) == element else parts.add(mllm.CastOp(x, element))


PARTS: dict[type[Operation], Callable[[Any, Parts], None]] = {
    mllm.ActivatedLinearOp: _activated_linear,
    mllm.ResidualNormOp: _residual_norm,
    mllm.NormGatedMlpOp: _norm_gated_mlp,
    mllm.QkvOp: _qkv,
    mllm.CachedAttentionOp: _cached_attention,
}
"""The function that takes each fused op apart."""


def parts_of(op: Operation) -> Parts | None:
    """The parts of a fused op, which are in no block yet; None where it has none."""
    take = PARTS.get(type(op))
    if take is None or _is_whole(op):
        return None
    parts = Parts()
    take(op, parts)
    for part in parts.ops:
        part.location = op.location
    return parts


def _is_whole(op: Operation) -> bool:
    """Whether no ops say what a fused op does: which tokens have 4 bits differs by query."""
    return isinstance(op, mllm.CachedAttentionOp) and value_of(op.cache_bits) == 4


def take_apart(graph: FuncOp, kinds: Collection[type[Operation]]) -> None:
    """Puts the parts of fused ops of some kinds in their place."""
    block = block_of(graph)
    for op in list(block.ops):
        parts = parts_of(op) if type(op) in kinds else None
        if parts is None:
            continue
        block.insert_ops_before(parts.ops, op)
        for result, value in zip(op.results, parts.results, strict=True):
            value._type = result.type  # pyright: ignore[reportPrivateUsage]
            result.replace_all_uses_with(value)
        op.detach()
        op.erase()
