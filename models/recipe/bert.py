"""BERT encoders (Devlin et al. 2019), with the names of Hugging Face's `BertModel`.

    input_ids, attention_mask, token_type_ids [batch, sequence]
      -> last_hidden_state [batch, sequence, hidden], pooler_output [batch, hidden]

LayoutLM (Xu et al. 2020) takes `bbox` [batch, sequence, 4] too: left, top, right and bottom of
each word on the page, from 0 to 1000, whose embeddings, and those of width and height, are added.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from models.recipe.attention import attend, merge_heads, padding_mask, split_heads
from models.recipe.drawn import DrawnGraph

_STEPS = ("batch_size", "sequence_length")
_EPSILON = 1e-12
_TYPES = 2


@dataclass(frozen=True)
class BertConfig:
    """Sizes of an encoder.

    Attributes:
        vocab: Number of tokens.
        hidden: Width of a token.
        heads: Number of attention heads.
        layers: Number of blocks.
        inner: Width of the MLP.
        longest: Positions that the model knows.
        places: Rows of the tables of coordinates; 0 where words have no place on a page.
    """

    vocab: int
    hidden: int
    heads: int
    layers: int
    inner: int
    longest: int
    places: int = 0


def encoder(config: BertConfig, seed: int) -> DrawnGraph:
    """Build the encoder with weights of a seed."""
    graph = DrawnGraph(seed)
    ids = graph.input("input_ids", TensorProto.INT64, _STEPS)
    boxes = graph.input("bbox", TensorProto.INT64, (*_STEPS, 4)) if config.places else None
    attention = graph.input("attention_mask", TensorProto.INT64, _STEPS)
    types = graph.input("token_type_ids", TensorProto.INT64, _STEPS)
    mask = padding_mask(graph, attention)
    with graph.scope("embeddings"):
        value = _embed(graph, config, ids, types, boxes)
    for index in range(config.layers):
        with graph.scope("encoder"), graph.scope(f"layer.{index}"):
            value = _layer(graph, config, value, f"encoder.layer.{index}", mask)
    graph.output(value, "last_hidden_state", (*_STEPS, config.hidden))
    with graph.scope("pooler"):
        first = graph.node("Gather", value, graph.constant(0), axis=1)
        with graph.scope("dense"):
            weight = graph.draw("pooler.dense.weight", config.hidden, config.hidden, scale=0.2)
            bias = graph.draw("pooler.dense.bias", config.hidden, scale=0.1)
            first = graph.node("Gemm", first, weight, bias, transB=1)
        pooled = graph.node("Tanh", first)
    graph.output(pooled, "pooler_output", ("batch_size", config.hidden))
    return graph


def _embed(graph: DrawnGraph, config: BertConfig, ids: str, types: str, boxes: str | None) -> str:
    """Add the embeddings of tokens, positions, places and types, and normalise the sum."""
    counted = graph.constant(np.arange(config.longest)[None])
    bound = graph.node("Unsqueeze", graph.size(ids, 1), graph.constant([0]))
    parts = [(graph.slice(counted, 0, bound, 1), "position_embeddings", config.longest)]
    parts += _places(graph, config, boxes) if boxes is not None else []
    parts += [(types, "token_type_embeddings", _TYPES)]
    value = graph.embed(ids, "embeddings.word_embeddings", config.vocab, config.hidden)
    for rows, name, count in parts:
        row = graph.embed(rows, f"embeddings.{name}", count, config.hidden)
        value = graph.node("Add", value, row)
    return graph.normalise(value, "embeddings.LayerNorm", config.hidden, _EPSILON)


def _places(graph: DrawnGraph, config: BertConfig, boxes: str) -> list[tuple[str, str, int]]:
    """What is looked up for a box: left and right in one table, top and bottom, height, width."""
    left, top, right, bottom = (
        graph.node("Gather", boxes, graph.constant(at), axis=2) for at in range(4)
    )
    high, wide = graph.node("Sub", bottom, top), graph.node("Sub", right, left)
    tables = [(left, "x"), (top, "y"), (right, "x"), (bottom, "y"), (high, "h"), (wide, "w")]
    return [(rows, f"{axis}_position_embeddings", config.places) for rows, axis in tables]


def _layer(graph: DrawnGraph, config: BertConfig, value: str, name: str, mask: str) -> str:
    """One block: attention and MLP, each added and then normalised."""
    hidden = config.hidden
    with graph.scope("attention"):
        with graph.scope("self"):
            mixed = _attention(graph, config, value, f"{name}.attention.self", mask)
        value = _added(graph, mixed, value, f"{name}.attention.output", hidden, hidden)
    with graph.scope("intermediate"):
        inner = graph.dense(value, f"{name}.intermediate.dense", hidden, config.inner)
        with graph.scope("intermediate_act_fn"):
            inner = graph.gelu(inner)
    return _added(graph, inner, value, f"{name}.output", config.inner, hidden)


def _attention(graph: DrawnGraph, config: BertConfig, value: str, name: str, mask: str) -> str:
    """Bidirectional attention over all tokens that are no padding."""
    head = config.hidden // config.heads
    query, key, values = (
        split_heads(graph, graph.dense(value, f"{name}.{part}", config.hidden, config.hidden), head)
        for part in ("query", "key", "value")
    )
    mixed = attend(graph, query, (key, values), scale=head**-0.5, mask=mask)
    return merge_heads(graph, mixed, config.hidden)


def _added(graph: DrawnGraph, branch: str, value: str, name: str, inputs: int, outputs: int) -> str:
    with graph.scope("output"):
        branch = graph.dense(branch, f"{name}.dense", inputs, outputs)
        total = graph.node("Add", branch, value)
        return graph.normalise(total, f"{name}.LayerNorm", outputs, _EPSILON)
