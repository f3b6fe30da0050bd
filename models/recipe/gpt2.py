"""GPT-2 language models (Radford et al. 2019), with the names of Hugging Face's `GPT2LMHeadModel`.

    input_ids [batch, sequence], attention_mask [batch, total], position_ids [batch, sequence],
    past_key_values.{layer}.{key,value} [batch, heads, past, head]
      -> logits [batch, sequence, vocab], present.{layer}.{key,value} [batch, heads, total, head]

Positions are learned, query, key and value are one product, and which keys a query sees is read
from a table of all pairs of positions, as in the exports of transformers before 4.50.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from models.recipe.attention import (
    LOWEST,
    Heads,
    Pair,
    grow_cache,
    merge_heads,
    padding_mask,
    split_heads,
    take_cache,
)
from models.recipe.drawn import DrawnGraph

_STEPS = ("batch_size", "sequence_length")
_EPSILON = 1e-5


@dataclass(frozen=True)
class Gpt2Config:
    """Sizes of a decoder.

    Attributes:
        vocab: Number of tokens.
        hidden: Width of the residual stream; the MLP has four times that.
        heads: Number of attention heads.
        layers: Number of blocks.
        longest: Positions that the model knows.
    """

    vocab: int
    hidden: int
    heads: int
    layers: int
    longest: int

    @property
    def shape(self) -> Heads:
        """How attention is divided."""
        return Heads(self.heads, self.heads, self.hidden // self.heads)


def decoder(config: Gpt2Config, seed: int) -> DrawnGraph:
    """Build the decoder with weights of a seed."""
    graph = DrawnGraph(seed)
    ids = graph.input("input_ids", TensorProto.INT64, _STEPS)
    total = ["batch_size", "total_sequence_length"]
    attention = graph.input("attention_mask", TensorProto.INT64, total)
    positions = graph.input("position_ids", TensorProto.INT64, _STEPS)
    cached = take_cache(graph, config.layers, config.shape)
    with graph.scope("transformer"):
        value = graph.embed(ids, "transformer.wte", config.vocab, config.hidden)
        places = graph.embed(positions, "transformer.wpe", config.longest, config.hidden)
        value = graph.node("Add", value, places)
        mask = padding_mask(graph, attention)
        for index, past in enumerate(cached):
            with graph.scope(f"h.{index}"):
                value = _layer(graph, config, value, index, past, mask)
        value = graph.normalise(value, "transformer.ln_f", config.hidden, _EPSILON)
    with graph.scope("lm_head"):
        table = graph.weight("transformer.wte.weight")
        logits = graph.node("MatMul", value, graph.node("Transpose", table, perm=[1, 0]))
    graph.output(logits, "logits", [*_STEPS, config.vocab])
    graph.sort_outputs(first="logits")
    return graph


def _layer(
    graph: DrawnGraph, config: Gpt2Config, value: str, index: int, past: Pair, mask: str
) -> str:
    """One block: attention and MLP, each over a normalised copy, each added."""
    name, hidden = f"transformer.h.{index}", config.hidden
    normed = graph.normalise(value, f"{name}.ln_1", hidden, _EPSILON)
    with graph.scope("attn"):
        branch = _attention(graph, config, normed, index, past, mask)
    value = graph.node("Add", branch, value)
    inner = graph.normalise(value, f"{name}.ln_2", hidden, _EPSILON)
    with graph.scope("mlp"):
        inner = graph.conv1d(inner, f"{name}.mlp.c_fc", hidden, 4 * hidden)
        with graph.scope("act"):
            inner = graph.gelu_tanh(inner)
        branch = graph.conv1d(inner, f"{name}.mlp.c_proj", 4 * hidden, hidden)
    return graph.node("Add", value, branch)


def _attention(
    graph: DrawnGraph, config: Gpt2Config, value: str, index: int, past: Pair, mask: str
) -> str:
    """Causal attention over the cache and the new tokens."""
    name, hidden, head = f"transformer.h.{index}.attn", config.hidden, config.shape.head
    fused = graph.conv1d(value, f"{name}.c_attn", hidden, 3 * hidden)
    parts = graph.split(fused, [hidden] * 3, 2)
    query, key, values = (split_heads(graph, part, head) for part in parts)
    key, values = grow_cache(graph, index, past, (key, values), config.shape)
    scores = graph.node("MatMul", query, graph.node("Transpose", key, perm=[0, 1, 3, 2]))
    scores = graph.node("Div", scores, graph.constant(head**0.5))
    seen = _seen(graph, config, query, key)
    scores = graph.node("Add", graph.node("Where", seen, scores, graph.constant(LOWEST)), mask)
    mixed = graph.node("MatMul", graph.node("Softmax", scores, axis=-1), values)
    return graph.conv1d(merge_heads(graph, mixed, hidden), f"{name}.c_proj", hidden, hidden)


def _seen(graph: DrawnGraph, config: Gpt2Config, query: str, key: str) -> str:
    """The rows of the new tokens, and the columns of all, of a table that is true up to itself."""
    square = np.ones((1, 1, config.longest, config.longest), np.bool_)
    table = graph.constant(np.tril(square))
    length, total = graph.size(query, 2), graph.size(key, 2)
    ends = [graph.unsqueeze(v, 0) for v in (graph.node("Sub", total, length), total)]
    return graph.slice(graph.slice(table, ends[0], ends[1], 2), 0, ends[1], 3)
