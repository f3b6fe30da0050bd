"""Rotary positions (Su et al. 2021) as Hugging Face's models spell them."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from models.recipe.graph import Graph

Waves = tuple[str, str]
"""Cosines and sines, [batch, 1, sequence, head] each."""


def waves(graph: Graph, positions: str, head: int, theta: float) -> Waves:
    """Return cosines and sines of positions [batch, sequence] times frequencies of base theta."""
    exponents = np.arange(0, head, 2, dtype=np.float32) / np.float32(head)
    frequencies = (1.0 / np.float32(theta) ** exponents).astype(np.float32)
    column = graph.unsqueeze(graph.constant(frequencies), 0, 2)
    shape = graph.shape([graph.size(positions, 0), head // 2, 1])
    column = graph.node("Expand", column, shape)
    row = graph.node("Cast", graph.unsqueeze(positions, 1), to=TensorProto.FLOAT)
    angles = graph.node("Transpose", graph.node("MatMul", column, row), perm=[0, 2, 1])
    doubled = graph.node("Concat", angles, angles, axis=-1)
    return graph.unsqueeze(graph.node("Cos", doubled), 1), graph.unsqueeze(
        graph.node("Sin", doubled), 1
    )


def rotate(graph: Graph, value: str, head: int, wave: Waves) -> str:
    """Apply `x cos + rotate_half(x) sin` to [batch, heads, sequence, head]."""
    first = graph.slice(value, 0, head // 2, 3)
    second = graph.slice(value, head // 2, np.iinfo(np.int64).max, 3)
    turned = graph.node("Concat", graph.node("Neg", second), first, axis=-1)
    plain = graph.node("Mul", value, wave[0])
    return graph.node("Add", plain, graph.node("Mul", turned, wave[1]))
