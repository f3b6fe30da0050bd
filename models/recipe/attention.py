"""Attention as Hugging Face's eager models spell it: heads apart, masks added, caches joined.

Heads stand in front of tokens, [batch, heads, tokens, head]; keys and values may have fewer heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from models.recipe.graph import Dim, Graph

LOWEST = float(np.finfo(np.float32).min)
"""What is added to the score of a key that may not be seen."""

Pair = tuple[str, str]
"""Keys and values."""


@dataclass(frozen=True)
class Heads:
    """How attention is divided.

    Attributes:
        heads: Query heads.
        kv_heads: Key and value heads; divides `heads`.
        head: Width of a head.
    """

    heads: int
    kv_heads: int
    head: int


def take_cache(graph: Graph, layers: int, shape: Heads) -> list[Pair]:
    """Declare the past of every layer as inputs."""
    dims: list[Dim] = ["batch_size", shape.kv_heads, "past_sequence_length", shape.head]
    cached: list[Pair] = []
    for index in range(layers):
        names = [f"past_key_values.{index}.{kind}" for kind in ("key", "value")]
        key, value = (graph.input(name, TensorProto.FLOAT, dims) for name in names)
        cached.append((key, value))
    return cached


def grow_cache(graph: Graph, index: int, past: Pair, new: Pair, shape: Heads) -> Pair:
    """Join a layer's past with its new tokens and make the result outputs."""
    key, value = (graph.node("Concat", p, n, axis=2) for p, n in zip(past, new, strict=True))
    dims: list[Dim] = ["batch_size", shape.kv_heads, "total_sequence_length", shape.head]
    graph.output(key, f"present.{index}.key", dims)
    graph.output(value, f"present.{index}.value", dims)
    return key, value


def split_heads(graph: Graph, value: str, head: int) -> str:
    """[batch, tokens, heads * head] -> [batch, heads, tokens, head]."""
    batch, length = graph.size(value, 0), graph.size(value, 1)
    apart = graph.node("Reshape", value, graph.shape([batch, length, -1, head]))
    return graph.node("Transpose", apart, perm=[0, 2, 1, 3])


def merge_heads(graph: Graph, value: str, width: int) -> str:
    """[batch, heads, tokens, head] -> [batch, tokens, width]."""
    turned = graph.node("Transpose", value, perm=[0, 2, 1, 3])
    batch, length = graph.size(turned, 0), graph.size(turned, 1)
    return graph.node("Reshape", turned, graph.shape([batch, length, width]))


def attend(
    graph: Graph, query: str, keys: Pair, *, scale: float | None, mask: str | None = None
) -> str:
    """Compute `softmax(scale q k^T + mask) v`; the mask stands in [batch, heads, tokens, total]."""
    scores = graph.node("MatMul", query, graph.node("Transpose", keys[0], perm=[0, 1, 3, 2]))
    if scale is not None:
        scores = graph.node("Mul", scores, graph.constant(scale))
    if mask is not None:
        scores = graph.node("Add", scores, mask)
    return graph.node("MatMul", graph.node("Softmax", scores, axis=-1), keys[1])


def repeat_heads(graph: Graph, value: str, shape: Heads) -> str:
    """Give every query head its own copy of the head it shares: the exporter's `repeat_kv`."""
    group = shape.heads // shape.kv_heads
    batch, total = graph.size(value, 0), graph.size(value, 2)
    apart = graph.unsqueeze(value, 2)
    wide = graph.shape([batch, shape.kv_heads, group, total, shape.head])
    flat = graph.shape([batch, shape.heads, total, shape.head])
    return graph.node("Reshape", graph.node("Expand", apart, wide), flat)


def causal_mask(graph: Graph, value: str, attention: str, *, window: int | None = None) -> str:
    """Return what is added to scores, [batch, 1, sequence, total]: 0 where allowed.

    Args:
        graph: The graph.
        value: [batch, sequence, ...], the new tokens.
        attention: [batch, total], 0 for padding.
        window: How many tokens one sees, itself among them.
    """
    length, total = graph.size(value, 1), graph.size(attention, 1)
    past = graph.node("Sub", total, length)
    rows = graph.node("Range", graph.constant(0), length, graph.constant(1))
    rows = graph.unsqueeze(graph.node("Add", rows, past), 1)
    columns = graph.node("Range", graph.constant(0), total, graph.constant(1))
    columns = graph.unsqueeze(columns, 0)
    seen = graph.node("LessOrEqual", columns, rows)
    if window is not None:
        near = graph.node("Greater", columns, graph.node("Sub", rows, graph.constant(window)))
        seen = graph.node("And", seen, near)
    real = graph.node("Cast", attention, to=TensorProto.BOOL)
    allowed = graph.node("And", graph.unsqueeze(seen, 0, 1), graph.unsqueeze(real, 1, 2))
    return graph.node("Where", allowed, graph.constant(0.0), graph.constant(LOWEST))


def padding_mask(graph: Graph, attention: str) -> str:
    """[batch, total], 0 for padding -> what is added to scores, [batch, 1, 1, total]."""
    real = graph.node("Cast", graph.unsqueeze(attention, 1, 2), to=TensorProto.FLOAT)
    hidden = graph.node("Sub", graph.constant(1.0), real)
    return graph.node("Mul", hidden, graph.constant(LOWEST))
