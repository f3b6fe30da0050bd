"""Past and present tensors become the state of a paged cache.

    %k1 = mllm.kv_append %past_key_values.0.key, %k
    %v1 = mllm.kv_append %past_key_values.0.value, %v
    %y = mllm.attention %q, %k1, %v1
    return .., %k1, %v1
->
    cpu.f32_kv_store %k, %v {layer = 0}
    %y = cpu.f32_paged_attention %q {layer = 0, ..}

Where attention reads the cache by codes or as f16, `bits` and the scales of keys go with the store:

    cpu.f32_kv_store %k, %v, %k_scale {layer = 0, bits = 8}

A first step without a past (Whisper's `decoder`) returns its new keys and values; they are stored
at the start of the cache, and attention goes on reading the tensors themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from mllm_compiler.dialects import cpu, mllm
from mllm_compiler.dialects.mllm import CacheAttr
from mllm_compiler.dialects.types import shape_of
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.attention_operands import with_operands
from mllm_compiler.passes.graphs import (
    argument,
    block_of,
    erase_arguments,
    erase_results,
    location_of,
    result_names,
    return_of,
    symbol_bound,
    users,
)
from mllm_compiler.passes.lower_to_cpu.builder import Builder

REMEDY = "export the model with plain softmax attention, or run it on the target numpy"


@dataclass(frozen=True)
class Shape:
    """What the tensors of one layer say of the cache."""

    kv_heads: int
    head_dim: int
    past: str


@dataclass(frozen=True)
class Codes:
    """How the pages of a layer hold keys and values."""

    bits: int
    k_scale: SSAValue | None


def take_codes(graph: FuncOp, cache: CacheAttr) -> dict[int, Codes]:
    """What layers of a growing cache are stored as; their attention then speaks of reals alone."""
    found: dict[int, Codes] = {}
    for layer in range(cache.layers.data):
        past = argument(graph, cache.key_name(layer))
        for op in [] if past is None else list(users(past)):
            if not isinstance(op, mllm.CachedAttentionOp) or op.cache_bits is None:
                continue
            if shape_of(op.past_k)[2].as_int() is not None:
                continue
            found[layer] = Codes(op.cache_bits.value.data, op.k_scale)
            plain = with_operands(op, k_scale=None)
            del plain.properties["cache_bits"]
            Rewriter.replace_op(op, plain)
    return found


def lower_cache(
    b: Builder, cache: CacheAttr, name: str, bounds: dict[str, int], codes: Mapping[int, Codes]
) -> None:
    """Rewrites every layer of a graph's cache and records the cache on the graph.

    Raises:
        CompileError: MLC-R002, a past tensor is used by something other than append and attention.
    """
    graph, layers = b.graph, cache.layers.data
    shapes = {_lower_layer(b, cache, i, codes.get(i)) for i in range(layers)} - {None}
    if not shapes:
        return
    if len(shapes) > 1:
        raise _refuse(graph, "the layers of the cache differ in shape")
    shape = next(iter(shapes))
    assert shape is not None
    tokens = symbol_bound(shape.past or "past_sequence_length", bounds)
    extents = (layers, shape.kv_heads, shape.head_dim)
    graph.attributes["cpu.cache"] = cpu.CacheAttr.of(name, extents, tokens, shape.past)
    kinds = ("key", "value")
    erase_results(graph, {cache.out_name(i, kind) for i in range(layers) for kind in kinds})
    _erase_appends(graph)
    pasts = {name(i) for i in range(layers) for name in (cache.key_name, cache.value_name)}
    erase_arguments(graph, pasts)


def _lower_layer(b: Builder, cache: CacheAttr, layer: int, codes: Codes | None) -> Shape | None:
    key = argument(b.graph, cache.key_name(layer))
    value = argument(b.graph, cache.value_name(layer))
    if key is not None and value is not None:
        if shape_of(key)[2].as_int() is not None:
            return None  # A past of one size is a tensor as any other: nothing grows.
        names = cache.key_name(layer), cache.value_name(layer)
        return _append_layer(b, layer, (names[0], key), (names[1], value), codes)
    names, returned = result_names(b.graph), return_of(b.graph).operands
    pair = [cache.out_name(layer, kind) for kind in ("key", "value")]
    if not set(pair) <= set(names):
        return None
    return _first_step(b, layer, [returned[names.index(n)] for n in pair])


def _append_layer(
    b: Builder,
    layer: int,
    key: tuple[str, SSAValue],
    value: tuple[str, SSAValue],
    codes: Codes | None,
) -> Shape:
    keys, values = _append_of(b.graph, *key), _append_of(b.graph, *value)
    readers = [op for op in users(keys.result) if not isinstance(op, ReturnOp)]
    for op in [*readers, *users(values.result)]:
        paired = isinstance(op, mllm.AttentionOp) and op.k is keys.result and op.v is values.result
        if not paired and not isinstance(op, ReturnOp):
            what = f"{key[0]} is read by '{op.name}' and not only by attention"
            raise _refuse(b.graph, what, location_of(op))
    readers.sort(key=block_of(b.graph).get_operation_index)
    _, heads, length, size = shape_of(key[1])
    shape = Shape(heads.as_int() or 0, size.as_int() or 0, length.as_symbol() or "")
    if not readers or not all((shape.kv_heads, shape.head_dim, shape.past)):
        raise _refuse(b.graph, f"{key[0]} has no use as a cache [batch, heads, past, channels]")
    _store(b, readers[0], keys.new, values.new, layer, shape, codes)
    for op in readers:
        assert isinstance(op, mllm.AttentionOp)
        _paged(b, op, layer)
    return shape


def _append_of(graph: FuncOp, name: str, past: SSAValue) -> mllm.KvAppendOp:
    for op in users(past):
        if isinstance(op, mllm.KvAppendOp) and op.past is past and past.has_one_use():
            return op
        raise _refuse(graph, f"{name} is read by '{op.name}' before new tokens are appended")
    raise _refuse(graph, f"{name} is not used")


def _store(
    b: Builder,
    before: Operation,
    key: SSAValue,
    value: SSAValue,
    layer: int,
    shape: Shape,
    codes: Codes | None = None,
) -> None:
    given = {} if codes is None else {"bits": codes.bits}
    scale = None if codes is None else codes.k_scale
    store = cpu.F32KvStoreOp.call(
        [key, value, scale], None, layer=layer, kv_heads=shape.kv_heads, **given
    )
    store.location = before.location
    block_of(b.graph).insert_op_before(store, before)


def _paged(b: Builder, op: mllm.AttentionOp, layer: int) -> None:
    b.at = op
    mask = None if op.key_mask is None else b.as_i64(op.key_mask)
    y = b.call(
        cpu.F32PagedAttentionOp,
        [op.q, mask, op.bias],
        op.result.type,
        layer=layer,
        heads=op.head_count,
        kv_heads=op.kv_head_count,
        scale=op.scale_value,
        causal=bool(op.causal.value.data),
        window=op.window.value.data if op.window else 0,
    )
    op.result.replace_all_uses_with(y)
    op.detach()
    op.erase()


def _first_step(b: Builder, layer: int, returned: list[SSAValue]) -> Shape | None:
    key, value = (_tokens_major(v) for v in returned)
    if key is None or value is None:
        return None
    _, heads, _, size = shape_of(returned[0])
    shape = Shape(heads.as_int() or 0, size.as_int() or 0, "")
    position = block_of(b.graph).get_operation_index
    last = max((v.owner for v in (key, value) if isinstance(v.owner, Operation)), key=position)
    after = last.next_op
    assert after is not None
    _store(b, after, key, value, layer, shape)
    return shape


def _tokens_major(value: SSAValue) -> SSAValue | None:
    """The [B, T, H*D] that a [B, H, T, D] was made from by splitting heads."""
    turn = value.owner
    if not isinstance(turn, mllm.TransposeOp) or turn.permutation != (0, 2, 1, 3):
        return None
    split = turn.x.owner
    if not isinstance(split, mllm.ReshapeOp) or len(shape_of(split.x)) != 3:
        return None
    return split.x


def _erase_appends(graph: FuncOp) -> None:
    for op in list(block_of(graph).ops):
        if isinstance(op, mllm.KvAppendOp) and op.result.first_use is None:
            op.detach()
            op.erase()


def _refuse(graph: FuncOp, message: str, location: str = "") -> CompileError:
    where = location or graph.sym_name.data
    return CompileError("MLC-R002", message, location=where, remedy=REMEDY)
