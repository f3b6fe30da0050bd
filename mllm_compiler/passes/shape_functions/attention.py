"""Shapes of the fused attention operators of ONNX and ONNX Runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from xdsl.dialects.builtin import i32

from mllm_compiler.dialects.dims import UNKNOWN, Dim
from mllm_compiler.passes.shape_functions.knowledge import (
    Dims,
    Known,
    ShapeFunction,
    Shapes,
    tensor,
)

if TYPE_CHECKING:
    from mllm_compiler.dialects.onnx_op import OnnxOp


def _cache(past: Known, batch: Dim, heads: Dim, tokens: Dim, width: Dim) -> Dims:
    """[batch, heads, past + new, width]."""
    length = tokens if past.dims is None else past.dims[2] + tokens
    return (batch, heads, length, width)


def attention(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """The standard's `Attention`: [B, T, H D] with counts of heads, or [B, H, T, D]."""
    q, k, v, past_k, past_v = (shapes.of(op.input(i)) for i in (0, 1, 2, 4, 5))
    if q.dims is None or k.dims is None or v.dims is None:
        return [tensor(q.element, None)] * len(op.outputs)
    if len(q.dims) == 4:
        out = (*q.dims[:3], v.dims[3])
        heads, queries = q.dims[1], q.dims[2]
        keys = _cache(past_k, k.dims[0], k.dims[1], k.dims[2], k.dims[3])
        values = _cache(past_v, v.dims[0], v.dims[1], v.dims[2], v.dims[3])
    else:
        heads = Dim.const(cast(int, op.attribute("q_num_heads")))
        kv = Dim.const(cast(int, op.attribute("kv_num_heads")))
        queries = q.dims[1]
        out = (*q.dims[:2], v.dims[2] // kv * heads)
        keys = _cache(past_k, k.dims[0], kv, k.dims[1], k.dims[2] // kv)
        values = _cache(past_v, v.dims[0], kv, v.dims[1], v.dims[2] // kv)
    scores = (q.dims[0], heads, queries, keys[2])
    return [tensor(q.element, d) for d in (out, keys, values, scores)]


def packed_attention(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """ONNX Runtime's `Attention`: one projection to queries, keys and values."""
    x, weight, past = (shapes.of(op.input(i)) for i in (0, 1, 4))
    if x.dims is None or weight.dims is None:
        return [tensor(x.element, None)] * len(op.outputs)
    heads = Dim.const(cast(int, op.attribute("num_heads")))
    sizes = cast("tuple[int, ...] | None", op.attribute("qkv_hidden_sizes"))
    width = weight.dims[1] // 3 if sizes is None else Dim.const(sizes[2])
    cache = _cache(_shifted(past), x.dims[0], heads, x.dims[1], width // heads)
    return [tensor(x.element, (*x.dims[:2], width)), tensor(x.element, (Dim.const(2), *cache))]


def _shifted(past: Known) -> Known:
    """The past of keys and values in one tensor: [2, batch, heads, past, width]."""
    return Known(past.element, past.dims and past.dims[1:])


def multi_head_attention(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """ONNX Runtime's `MultiHeadAttention`."""
    q, k, v, past = (shapes.of(op.input(i)) for i in (0, 1, 2, 6))
    heads = Dim.const(cast(int, op.attribute("num_heads")))
    if q.dims is None:
        return [tensor(q.element, None)] * len(op.outputs)
    if len(q.dims) == 5:
        batch, tokens, _, _, each = q.dims
        new, out = tokens, (batch, tokens, heads * each)
    else:
        batch, tokens, width = q.dims
        values = v.dims
        if values is None and op.input(2) is not None:
            return [tensor(q.element, None)] * len(op.outputs)
        out = (batch, tokens, width)
        each, new = width // heads, tokens
        if values is not None:
            new = values[2] if len(values) == 4 else values[1]
            each = values[3] if len(values) == 4 else values[2] // heads
            out = (batch, tokens, each * heads)
        elif k.dims is not None and len(k.dims) == 5:
            new = k.dims[1]
    cache = _cache(past, batch, heads, new, each)
    scores = (batch, heads, tokens, cache[2])
    return [tensor(q.element, d) for d in (out, cache, cache, scores)]


def group_query_attention(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """ONNX Runtime's `GroupQueryAttention`: packed or separate, with a cache."""
    q, past = shapes.of(op.input(0)), shapes.of(op.input(3))
    heads, kv = (cast(int, op.attribute(n)) for n in ("num_heads", "kv_num_heads"))
    if q.dims is None:
        return [tensor(q.element, None)] * len(op.outputs)
    batch, tokens, width = q.dims
    packed = op.input(1) is None
    each = width // Dim.const(heads + 2 * kv if packed else heads)
    if past.dims is not None:
        shapes.equate(past.dims[3], each, op)
    # The cache may be a buffer that is longer than what it holds; its length is then kept.
    total = shapes.of(op.input(6)).contents
    length = total[0] if total else past.dims[2] + tokens if past.dims else UNKNOWN
    cache = (batch, Dim.const(kv), length, each)
    scores = (batch, Dim.const(heads), tokens, length)
    return [tensor(q.element, d) for d in ((batch, tokens, each * heads), cache, cache, scores)]


def embed_layer_norm(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """[batch, tokens] ids -> [batch, tokens, width], the index of the mask, the sum."""
    ids, table = shapes.of(op.input(0)), shapes.of(op.input(2))
    dims = ids.dims and table.dims and (*ids.dims, table.dims[1])
    like = tensor(table.element, dims or None)
    return [like, tensor(i32, ids.dims and ids.dims[:1]), like]


FUNCTIONS: Final[dict[str, ShapeFunction]] = {
    "onnx.Attention": attention,
    "onnx.microsoft.Attention": packed_attention,
    "onnx.microsoft.MultiHeadAttention": multi_head_attention,
    "onnx.microsoft.GroupQueryAttention": group_query_attention,
    "onnx.microsoft.EmbedLayerNormalization": embed_layer_norm,
}
"""Shape functions by operator."""
