"""The meanings of ONNX Runtime's attention operators (`com.microsoft`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.errors import CompileError
from mllm_compiler.reference.executor import Array
from mllm_compiler.reference.onnx_arguments import Arguments, optional

_FAR = -1e9


def _heads(x: Array, heads: int) -> Array:
    """[B, T, H D] -> [B, H, T, D]."""
    batch, tokens, width = x.shape
    return x.reshape(batch, tokens, heads, width // heads).transpose(0, 2, 1, 3)


def _joined(x: Array) -> Array:
    """[B, H, T, D] -> [B, T, H D]."""
    batch, heads, tokens, width = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, tokens, heads * width)


def _appended(past: Array | None, new: Array) -> Array:
    return new if past is None else np.concatenate([past, new], axis=2)


def _attend(
    q: Array, k: Array, v: Array, bias: Array | None, scale: float | None
) -> tuple[Array, Array]:
    """The result [B, H, T, D] and the scores; key heads are repeated for groups of query heads."""
    groups = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, groups, axis=1) if groups > 1 else x for x in (k, v))
    factor = np.float32(scale) if scale else np.float32(1 / np.sqrt(q.shape[3]))
    scores = np.matmul(q.astype(np.float32), np.swapaxes(k, -1, -2).astype(np.float32)) * factor
    scores = scores if bias is None else scores + bias
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    return np.matmul(weights, v.astype(np.float32)).astype(q.dtype), scores.astype(q.dtype)


def _causal(queries: int, keys: int, window: int = -1) -> Array:
    """0 where a query sees a key, far below it elsewhere; the last query sees the last key."""
    at = np.arange(queries)[:, None] + keys - queries
    key = np.arange(keys)[None, :]
    seen = (key <= at) if window < 0 else (key <= at) & (key > at - window)
    return np.where(seen, np.float32(0), np.float32(_FAR))


def _padding(mask: Array | None, keys: int) -> Array | None:
    """A mask of keys ([B, S]), of lengths ([B]) or of scores ([B, T, S]) as a bias."""
    if mask is None:
        return None
    if mask.ndim == 1:
        mask = np.arange(keys)[None, :] < mask[:, None]
    seen = mask.astype(bool)
    seen = seen[:, None, None, :] if seen.ndim == 2 else seen[:, None]
    return np.where(seen, np.float32(0), np.float32(_FAR))


def _sum(*biases: Array | None) -> Array | None:
    total: Array | None = None
    for bias in biases:
        total = bias if total is None else total if bias is None else total + bias
    return total


def _scale(op: OnnxOp) -> float | None:
    return cast("float | None", op.attribute("scale"))


def packed(op: OnnxOp, x: Arguments) -> Sequence[Array]:
    """`Attention`: one projection to queries, keys and values."""
    data, weight, bias, mask, past, extra = (optional(x, i) for i in range(6))
    if data is None or weight is None or op.attribute("do_rotary"):
        raise CompileError(
            "MLC-D002", "'onnx.microsoft.Attention' with do_rotary has no meaning yet"
        )
    heads = cast(int, op.attribute("num_heads"))
    projected = np.matmul(data, weight) if bias is None else np.matmul(data, weight) + bias
    sizes = cast("tuple[int, ...] | None", op.attribute("qkv_hidden_sizes"))
    cuts = np.cumsum(sizes)[:2] if sizes else [weight.shape[1] // 3, weight.shape[1] // 3 * 2]
    q, k, v = (_heads(part, heads) for part in np.split(projected, cuts, axis=-1))
    k, v = (_appended(None if past is None else past[i], part) for i, part in enumerate((k, v)))
    causal = _causal(q.shape[2], k.shape[2]) if op.attribute("unidirectional") else None
    out, _ = _attend(q, k, v, _sum(_padding(mask, k.shape[2]), extra, causal), _scale(op))
    return _joined(out), np.stack([k, v])


def multi_head(op: OnnxOp, x: Arguments) -> Sequence[Array]:
    """`MultiHeadAttention`: projected queries, keys and values, packed or not."""
    q, k, v, bias, mask, extra, past_k, past_v = (optional(x, i) for i in range(8))
    heads = cast(int, op.attribute("num_heads"))
    assert q is not None
    if q.ndim == 5:
        q, k, v = (part.reshape(*part.shape[:2], -1) for part in np.moveaxis(q, 3, 0))
    elif k is not None and k.ndim == 5:
        k, v = (part.reshape(*part.shape[:2], -1) for part in np.moveaxis(k, 3, 0))
    assert k is not None
    assert v is not None
    if bias is not None:
        width, wide_v = q.shape[2], v.shape[-1] if v.ndim == 3 else v.shape[1] * v.shape[3]
        q = q + bias[:width]
        k = k + bias[width : 2 * width] if k.ndim == 3 else k
        v = v + bias[2 * width : 2 * width + wide_v] if v.ndim == 3 else v
    keys = _appended(past_k, k if k.ndim == 4 else _heads(k, heads))
    values = _appended(past_v, v if v.ndim == 4 else _heads(v, heads))
    queries = _heads(q, heads)
    causal = op.attribute("unidirectional")
    hidden = _causal(queries.shape[2], keys.shape[2]) if causal else None
    total = _sum(_padding(mask, keys.shape[2]), extra, hidden)
    out, scores = _attend(queries, keys, values, total, _scale(op))
    return _joined(out), keys, values, scores


def rotated(x: Array, positions: Array, cos: Array, sin: Array, *, interleaved: bool) -> Array:
    """[B, H, T, D] with its first dims turned by the angles of the positions ([B, T])."""
    half = cos.shape[-1]
    c, s = (table[positions][:, None] for table in (cos, sin))
    part, rest = x[..., : 2 * half], x[..., 2 * half :]
    if interleaved:
        even, odd = part[..., ::2], part[..., 1::2]
        turned = np.stack([even * c - odd * s, even * s + odd * c], axis=-1).reshape(part.shape)
    else:
        low, high = part[..., :half], part[..., half:]
        turned = np.concatenate([low * c - high * s, low * s + high * c], axis=-1)
    return np.concatenate([turned, rest], axis=-1).astype(x.dtype)


def rotary(op: OnnxOp, x: Arguments) -> Sequence[Array]:
    """`RotaryEmbedding` of [B, T, H D] or [B, H, T, D]."""
    data, positions, cos, sin = (cast(Array, optional(x, i)) for i in range(4))
    heads = cast(int, op.attribute("num_heads"))
    if data.ndim == 3:
        count = heads or data.shape[2] // (2 * cos.shape[1])
        split = _heads(data, count)
    else:
        split = data
    batch, tokens = split.shape[0], split.shape[2]
    if positions.size == 1:
        steps = np.arange(tokens, dtype=np.int64)
        positions = positions.reshape(1, 1) + steps
    positions = np.broadcast_to(positions, (batch, tokens))
    turned = rotated(split, positions, cos, sin, interleaved=bool(op.attribute("interleaved")))
    return (_joined(turned) if data.ndim == 3 else turned,)


def group_query(op: OnnxOp, x: Arguments) -> Sequence[Array]:
    """`GroupQueryAttention`: causal, grouped, with a cache and optional rotation.

    `seqlens_k` is the number of valid keys, less one; the cache is taken to be as long as its past.
    """
    q, k, v, past_k, past_v, lengths, _, cos, sin = (optional(x, i) for i in range(9))
    heads, kv = (cast(int, op.attribute(n)) for n in ("num_heads", "kv_num_heads"))
    if (
        q is None
        or lengths is None
        or (op.attribute("softcap") or 0)
        or optional(x, 11) is not None
    ):
        raise CompileError("MLC-D002", f"'{op.name}' with softcap or sinks has no meaning yet")
    if k is None or v is None:
        each = q.shape[2] // (heads + 2 * kv)
        q, k, v = np.split(q, [heads * each, (heads + kv) * each], axis=-1)
    queries, keys, values = _heads(q, heads), _heads(k, kv), _heads(v, kv)
    past = 0 if past_k is None else past_k.shape[2]
    if op.attribute("do_rotary") and cos is not None and sin is not None:
        given = optional(x, 9)
        steps = np.arange(past, past + queries.shape[2], dtype=np.int64)
        at = np.broadcast_to(steps, (len(q), len(steps))) if given is None else given
        inter = bool(op.attribute("rotary_interleaved"))
        queries, keys = (rotated(p, at, cos, sin, interleaved=inter) for p in (queries, keys))
    keys, values = _appended(past_k, keys), _appended(past_v, values)
    window = cast(int, op.attribute("local_window_size"))
    hidden = _causal(queries.shape[2], keys.shape[2], window)
    valid = _padding(lengths.reshape(-1) + 1, keys.shape[2])
    total = _sum(hidden, valid, optional(x, 10))
    out, scores = _attend(queries, keys, values, total, _scale(op))
    return _joined(out), keys, values, scores


COMPUTES: dict[str, Callable[[OnnxOp, Arguments], Sequence[Array]]] = {
    "Attention": packed,
    "MultiHeadAttention": multi_head,
    "RotaryEmbedding": rotary,
    "GroupQueryAttention": group_query,
}
"""What each operator computes from its operands, by position in its schema."""
