"""Meanings of the `cpu` dialect: what each C kernel computes, on NumPy arrays.

Packed weights are unpacked first. `f32_kv_store` and `f32_paged_attention` work on an explicit
cache, which `run_lowered` is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.dialects import cpu
from mllm_compiler.dialects.calls import ints
from mllm_compiler.dialects.mllm import Coordinates, PoolKind, ReduceKind, ResizeMode, UnaryKind
from mllm_compiler.dialects.mllm.constants import array_of
from mllm_compiler.dialects.mllm.quant import value_of
from mllm_compiler.dialects.types import dtype_of, element_of, tensor_type
from mllm_compiler.reference import cpu_elementwise, cpu_quant, kv_cache
from mllm_compiler.reference.calls import call
from mllm_compiler.reference.entry import one, several
from mllm_compiler.reference.executor import (
    Array,
    Frame,
    Listener,
    Meaning,
    argument_names,
    bind_symbols,
    find_function,
    result_names,
)
from mllm_compiler.reference.mllm_attention import causal_mask, merge_heads, split_heads, top_k
from mllm_compiler.reference.mllm_elementwise import apply_unary
from mllm_compiler.reference.mllm_linear import REDUCE, softmax
from mllm_compiler.reference.mllm_scan import cumsum, selective_scan
from mllm_compiler.reference.mllm_vision import Grid, resized, windows
from mllm_compiler.reference.panels import columns, held, unpack
from mllm_compiler.weights import WeightStore


@dataclass
class CacheState:
    """The keys and values of each layer, [B, Hkv, tokens, D], of which `length` tokens count.

    They are what is stored means; `bits` says how, where a layer does not hold f32.
    """

    length: int = 0
    bits: dict[int, int] = field(default_factory=dict[int, int])
    keys: dict[int, Array] = field(default_factory=dict[int, Array])
    values: dict[int, Array] = field(default_factory=dict[int, Array])

    def append(self, layer: int, key: Array, value: Array) -> None:
        """Writes tokens behind the first `length`."""
        for side, new in ((self.keys, key), (self.values, value)):
            past = side[layer][:, :, : self.length] if layer in side else new[:, :, :0]
            side[layer] = np.concatenate([past, new], axis=2)


@dataclass
class CacheFrame(Frame):
    """A frame with a cache."""

    cache: CacheState = field(default_factory=CacheState)


def run_lowered(
    module: ModuleOp,
    name: str,
    inputs: Mapping[str, Array],
    store: WeightStore,
    cache: CacheState | None = None,
    *,
    listener: Listener | None = None,
) -> dict[str, Array]:
    """Runs a graph of a lowered module; the cache then holds the tokens that the graph appended."""
    function, state = find_function(module, name), cache or CacheState()
    arrays = [inputs[n] for n in argument_names(function)]
    attr = function.attributes.get("cpu.cache")
    past = attr.past_symbol.data if isinstance(attr, cpu.CacheAttr) else ""
    env = bind_symbols(function, arrays) | ({past: state.length} if past else {})
    frame = CacheFrame(env, store, listener, cache=state)
    results = frame.run_block(function.body.block, arrays)
    if isinstance(attr, cpu.CacheAttr):
        state.length = state.keys[0].shape[2]
    return dict(zip(result_names(function), results, strict=True))


def _weight(op: cpu.WeightOp, operands: Sequence[Array], frame: Frame) -> Array:
    blob = op.value
    array = frame.store.array(blob.digest.data, str(blob.element), blob.dims)
    return held(array, op.layout.data)


def _constant(op: cpu.ConstantOp, operands: Sequence[Array], frame: Frame) -> Array:
    return held(array_of(op.value), op.layout.data)


def _linear(op: cpu.F32LinearOp, operands: Sequence[Array], frame: Frame) -> Sequence[Array]:
    x, panels, *bias = operands
    y = np.matmul(x, unpack(panels, op.n.value.data).T)
    if bias:
        y = y + bias[0]
    kind = op.activation.data
    return columns(op, y if kind == "none" else apply_unary(UnaryKind(kind), y), frame)


def _matmul(op: cpu.F32MatmulOp, operands: Sequence[Array], frame: Frame) -> Array:
    a, b = operands
    return np.matmul(a, b.swapaxes(-1, -2) if op.transpose_b.value.data else b)


def _layer_norm(op: cpu.F32LayerNormOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, *sides = operands
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    y = centred / np.sqrt(variance + np.float32(op.epsilon.value.data))
    y = y if op.weight is None else y * sides.pop(0)
    return y if op.bias is None else y + sides.pop(0)


def _rms_norm(op: cpu.F32RmsNormOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, weight = operands
    square = (x * x).mean(-1, keepdims=True)
    return x / np.sqrt(square + np.float32(op.epsilon.value.data)) * weight


def _softmax(op: cpu.F32SoftmaxOp, operands: Sequence[Array], frame: Frame) -> Array:
    return softmax(operands[0], op.axis.value.data)


def _reduce(op: cpu.F32ReduceOp, operands: Sequence[Array], frame: Frame) -> Array:
    axes = tuple(ints(op.axes))
    with np.errstate(all="ignore"):
        y = REDUCE[ReduceKind(op.kind.data)](operands[0], axes, False)
    return np.asarray(y).reshape(frame.shape(tensor_type(op.y))).astype(np.float32)


def _cumsum(op: cpu.CumsumOp, operands: Sequence[Array], frame: Frame) -> Array:
    flags = {"exclusive": bool(op.exclusive.value.data), "reverse": bool(op.reverse.value.data)}
    return cumsum(operands[0], op.axis.value.data, **flags)


def _selective_scan(
    op: cpu.F32SelectiveScanOp, operands: Sequence[Array], frame: Frame
) -> Sequence[Array]:
    x, step, a, b, c, state = operands
    return selective_scan(x, step, a, b, c, state)


def _rope(op: cpu.F32RopeOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, positions, frequency = operands
    angle = (positions[..., None].astype(np.float32) * frequency)[:, :, None, :]
    split = x.reshape(*x.shape[:2], op.heads.value.data, -1).copy()
    half = len(frequency)
    pairs = (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
    if not op.interleaved.value.data:
        pairs = (slice(0, half), slice(half, 2 * half))
    a, b = (split[..., p].copy() for p in pairs)
    split[..., pairs[0]] = a * np.cos(angle) - b * np.sin(angle)
    split[..., pairs[1]] = b * np.cos(angle) + a * np.sin(angle)
    return split.reshape(x.shape)


def _attend(
    op: cpu.F32AttentionOp | cpu.F32PagedAttentionOp,
    q: Array,
    k: Array,
    v: Array,
    sides: list[Array],
) -> Array:
    """softmax(scale q k^T + bias) v over the keys that each query sees."""
    heads, kv_heads = op.heads.value.data, op.kv_heads.value.data
    keys, values = (np.repeat(split_heads(x, kv_heads), heads // kv_heads, axis=1) for x in (k, v))
    scores = np.matmul(split_heads(q, heads), keys.swapaxes(2, 3)) * np.float32(op.scale.value.data)
    mask = sides.pop(0)[:, None, None, :] != 0 if op.key_mask is not None else None
    if op.bias is not None:
        scores = scores + sides.pop(0)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    if op.causal.value.data:
        seen = causal_mask(q.shape[1], keys.shape[2], op.window.value.data or None)
        scores = np.where(seen, scores, -np.inf)
    blind = (scores == -np.inf).all(-1, keepdims=True)
    return merge_heads(np.matmul(softmax(np.where(blind, 0, scores), -1), values))


def _attention(op: cpu.F32AttentionOp, operands: Sequence[Array], frame: Frame) -> Array:
    q, k, v, *sides = operands
    return _attend(op, q, k, v, sides)


def _kv_store(op: cpu.F32KvStoreOp, operands: Sequence[Array], frame: Frame) -> Sequence[Array]:
    assert isinstance(frame, CacheFrame)
    key, value = (split_heads(x, op.kv_heads.value.data) for x in operands[:2])
    layer, bits = op.layer.value.data, value_of(op.bits)
    if bits is not None:
        frame.cache.bits[layer] = bits
        key, value = kv_cache.stored_tokens(key, value, (*operands, None)[2])
    frame.cache.append(layer, key, value)
    return ()


def _paged(op: cpu.F32PagedAttentionOp, operands: Sequence[Array], frame: Frame) -> Array:
    assert isinstance(frame, CacheFrame)
    layer, (q, *sides) = op.layer.value.data, operands
    keys, values = frame.cache.keys[layer], frame.cache.values[layer]
    if frame.cache.bits.get(layer) != 4:
        return _attend(op, q, keys, values, sides)
    return kv_cache.by_page(
        q, keys, values, lambda rows, k, v: _attend(op, q, k, v, sides)[:, rows]
    )


def _embedding(op: cpu.F32EmbeddingOp, operands: Sequence[Array], frame: Frame) -> Array:
    ids, panels = operands
    return unpack(panels, panels.shape[0] * panels.shape[2])[ids]


def _gather(op: cpu.GatherOp, operands: Sequence[Array], frame: Frame) -> Array:
    return np.take(operands[0], operands[1], axis=op.axis.value.data)


def _top_k(op: cpu.TopKOp, operands: Sequence[Array], frame: Frame) -> Array:
    shape = frame.shape(tensor_type(op.y))
    axis, smallest = op.axis.value.data, bool(op.smallest.value.data)
    by_index = bool(op.by_index.value.data)
    values, indices = top_k(operands[0], shape[axis], axis, smallest=smallest, by_index=by_index)
    return indices if op.part.data == "indices" else values


def _transpose(op: cpu.TransposeOp, operands: Sequence[Array], frame: Frame) -> Array:
    return np.ascontiguousarray(operands[0].transpose(ints(op.perm)))


def _slice(op: cpu.SliceOp, operands: Sequence[Array], frame: Frame) -> Array:
    taken = operands[0]
    extents = frame.shape(tensor_type(op.y))
    for axis, (start, step) in enumerate(zip(op.starts.data, ints(op.steps), strict=True)):
        index = frame.size(start) + step * np.arange(extents[axis])
        taken = np.take(taken, index, axis=axis)
    return taken


def _concat(op: cpu.ConcatOp, operands: Sequence[Array], frame: Frame) -> Array:
    return np.concatenate(list(operands), axis=op.axis.value.data)


def _broadcast(op: cpu.BroadcastOp, operands: Sequence[Array], frame: Frame) -> Array:
    return np.ascontiguousarray(np.broadcast_to(operands[0], frame.shape(tensor_type(op.y))))


def _cast(op: cpu.CastOp, operands: Sequence[Array], frame: Frame) -> Array:
    with np.errstate(all="ignore"):
        return operands[0].astype(dtype_of(element_of(op.y)))


def _iota(op: cpu.IotaOp, operands: Sequence[Array], frame: Frame) -> Array:
    (count,) = frame.shape(tensor_type(op.y))
    start = frame.size(op.start.data[0])
    return start + op.step.value.data * np.arange(count, dtype=np.int64)


def _pad(op: cpu.PadOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, shape = operands[0], frame.shape(tensor_type(op.y))
    raw = op.value.value.data.to_bytes(8, "little", signed=True)[: x.dtype.itemsize]
    y = np.full(shape, np.frombuffer(raw, x.dtype)[0])
    target: list[slice] = []
    source: list[slice] = []
    for n, m, b in zip(x.shape, shape, ints(op.before), strict=True):
        first, last = max(b, 0), min(n + b, m)
        target.append(slice(first, last))
        source.append(slice(first - b, last - b))
    y[tuple(target)] = x[tuple(source)]
    return y


def _copy(op: cpu.CopyOp, operands: Sequence[Array], frame: Frame) -> Array:
    return operands[0].copy()


def _alias(op: cpu.AliasOp, operands: Sequence[Array], frame: Frame) -> Array:
    return operands[0].reshape(frame.shape(tensor_type(op.y)))


def _patch_embed(op: cpu.F32PatchEmbedOp, operands: Sequence[Array], frame: Frame) -> Array:
    pixels, panels, *bias = operands
    p, (batch, channels, height, width) = op.patch.value.data, pixels.shape
    rows, columns = height // p, width // p
    cut = pixels[:, :, : rows * p, : columns * p].reshape(batch, channels, rows, p, columns, p)
    flat = cut.transpose(0, 2, 4, 1, 3, 5).reshape(batch, rows * columns, -1)
    y = np.matmul(flat, unpack(panels, op.n.value.data).T)
    return y + bias[0] if bias else y


def _conv(op: cpu.F32ConvOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, w, *bias = operands
    kernel, groups, out = ints(op.kernel_shape), op.groups.value.data, op.out_channels.value.data
    if groups == 1:
        w = unpack(w, out)
    w = w.reshape(groups, out // groups, -1)
    seen = windows(x, kernel, ints(op.strides), ints(op.pads), ints(op.dilations), 0.0)
    n = len(kernel)
    seen = np.moveaxis(seen, 1, 1 + n)
    seen = seen.reshape(*seen.shape[: 1 + n], groups, w.shape[2])
    y = np.einsum("...gk,gok->...go", seen, w).reshape(*seen.shape[: 1 + n], out)
    y = y + bias[0] if bias else y
    y = np.ascontiguousarray(np.moveaxis(y, -1, 1)).astype(np.float32)
    kind = op.activation.data
    return y if kind == "none" else apply_unary(UnaryKind(kind), y)


def _pool(op: cpu.F32PoolOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, kernel = operands[0], ints(op.kernel_shape)
    n, window = len(kernel), (kernel, ints(op.strides), ints(op.pads), [1] * len(kernel))
    inner = tuple(range(-n, 0))
    if op.kind.data == PoolKind.MAX.value:
        return windows(x, *window, -np.inf).max(inner)
    fill = 1.0 if op.count_include_pad.value.data else 0.0
    counted = windows(np.ones_like(x), *window, fill).sum(inner)
    return (windows(x, *window, 0.0).sum(inner) / counted).astype(np.float32)


def _resize(op: cpu.F32ResizeOp, operands: Sequence[Array], frame: Frame) -> Array:
    axis, scale = op.axis.value.data, op.scale.value.data
    mode, coordinates = ResizeMode(op.mode.data), Coordinates(op.coordinates.data)
    grid = Grid(mode, coordinates, op.cubic_coeff.value.data, scale or None)
    y = resized(operands[0], axis, frame.shape(tensor_type(op.y))[axis], grid)
    return np.ascontiguousarray(y)


MEANINGS: dict[str, Meaning] = (
    dict(
        [
            one(cpu.WeightOp, _weight),
            one(cpu.ConstantOp, _constant),
            several(cpu.F32LinearOp, _linear),
            one(cpu.F32MatmulOp, _matmul),
            one(cpu.F32LayerNormOp, _layer_norm),
            one(cpu.F32RmsNormOp, _rms_norm),
            one(cpu.F32SoftmaxOp, _softmax),
            one(cpu.F32ReduceOp, _reduce),
            one(cpu.CumsumOp, _cumsum),
            several(cpu.F32SelectiveScanOp, _selective_scan),
            one(cpu.F32RopeOp, _rope),
            one(cpu.F32AttentionOp, _attention),
            several(cpu.F32KvStoreOp, _kv_store),
            one(cpu.F32PagedAttentionOp, _paged),
            one(cpu.F32EmbeddingOp, _embedding),
            one(cpu.GatherOp, _gather),
            one(cpu.TopKOp, _top_k),
            one(cpu.TransposeOp, _transpose),
            one(cpu.SliceOp, _slice),
            one(cpu.ConcatOp, _concat),
            one(cpu.BroadcastOp, _broadcast),
            one(cpu.CastOp, _cast),
            one(cpu.IotaOp, _iota),
            one(cpu.PadOp, _pad),
            one(cpu.CopyOp, _copy),
            one(cpu.AliasOp, _alias),
            one(cpu.F32PatchEmbedOp, _patch_embed),
            one(cpu.F32ConvOp, _conv),
            one(cpu.F32PoolOp, _pool),
            one(cpu.F32ResizeOp, _resize),
        ]
    )
    | dict(cpu_elementwise.MEANINGS)
    | dict(cpu_quant.MEANINGS)
    | {cpu.DeviceCallOp.name: call}
)
"""Op name to meaning."""
