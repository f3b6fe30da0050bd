"""BLOOM language models (Scao et al. 2022), with the names of Hugging Face's `BloomForCausalLM`.

    input_ids [batch, sequence], attention_mask [batch, total],
    past_key_values.{layer}.{key,value} [batch, heads, past, head]
      -> logits [batch, sequence, vocab], present.{layer}.{key,value} [batch, heads, total, head]

Scores fall with the distance (ALiBi, Press et al. 2022), which is counted over the mask, so that
padding does not count; query, key and value of a head stand side by side in one product.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from models.recipe.attention import (
    Heads,
    Pair,
    causal_mask,
    grow_cache,
    merge_heads,
    take_cache,
)
from models.recipe.drawn import DrawnGraph

_STEPS = ("batch_size", "sequence_length")
_EPSILON = 1e-5
_LAYER_NORM = "transformer.word_embeddings_layernorm"


@dataclass(frozen=True)
class BloomConfig:
    """Sizes of a decoder.

    Attributes:
        vocab: Number of tokens.
        hidden: Width of the residual stream; the MLP has four times that.
        heads: Number of attention heads, a power of two.
        layers: Number of blocks.
    """

    vocab: int
    hidden: int
    heads: int
    layers: int

    @property
    def shape(self) -> Heads:
        """How attention is divided."""
        return Heads(self.heads, self.heads, self.hidden // self.heads)


def decoder(config: BloomConfig, seed: int) -> DrawnGraph:
    """Build the decoder with weights of a seed."""
    graph = DrawnGraph(seed)
    ids = graph.input("input_ids", TensorProto.INT64, _STEPS)
    total = ["batch_size", "total_sequence_length"]
    attention = graph.input("attention_mask", TensorProto.INT64, total)
    cached = take_cache(graph, config.layers, config.shape)
    with graph.scope("transformer"):
        value = graph.embed(ids, "transformer.word_embeddings", config.vocab, config.hidden)
        value = graph.normalise(value, _LAYER_NORM, config.hidden, _EPSILON)
        alibi = _alibi(graph, config, attention)
        mask = causal_mask(graph, value, attention)
        for index, past in enumerate(cached):
            with graph.scope(f"h.{index}"):
                value = _layer(graph, config, value, index, past, (alibi, mask))
        value = graph.normalise(value, "transformer.ln_f", config.hidden, _EPSILON)
    with graph.scope("lm_head"):
        table = graph.weight("transformer.word_embeddings.weight")
        logits = graph.node("MatMul", value, graph.node("Transpose", table, perm=[1, 0]))
    graph.output(logits, "logits", [*_STEPS, config.vocab])
    graph.sort_outputs(first="logits")
    return graph


def _alibi(graph: DrawnGraph, config: BloomConfig, attention: str) -> str:
    """Return what is added to scores, [batch * heads, 1, total]: slopes times positions."""
    slopes = 2.0 ** (-8 * np.arange(1, config.heads + 1)[:, None] / config.heads)
    counted = graph.node("CumSum", attention, graph.constant(-1))
    counted = graph.node("Sub", counted, graph.constant(1))
    counted = graph.unsqueeze(graph.node("Mul", counted, attention), 1)
    counted = graph.node("Cast", counted, to=TensorProto.FLOAT)
    biases = graph.node("Mul", graph.constant(slopes), counted)
    rows = graph.node("Mul", graph.size(attention, 0), graph.constant(config.heads))
    return graph.node("Reshape", biases, graph.shape([rows, 1, graph.size(attention, 1)]))


def _layer(
    graph: DrawnGraph,
    config: BloomConfig,
    value: str,
    index: int,
    past: Pair,
    biases: tuple[str, str],
) -> str:
    """One block: attention and MLP, each over a normalised copy, each added."""
    name, hidden = f"transformer.h.{index}", config.hidden
    normed = graph.normalise(value, f"{name}.input_layernorm", hidden, _EPSILON)
    with graph.scope("self_attention"):
        branch = _attention(graph, config, normed, index, past, biases)
    value = graph.node("Add", value, branch)
    inner = graph.normalise(value, f"{name}.post_attention_layernorm", hidden, _EPSILON)
    with graph.scope("mlp"):
        inner = graph.dense(inner, f"{name}.mlp.dense_h_to_4h", hidden, 4 * hidden)
        with graph.scope("gelu_impl"):
            inner = _gelu(graph, inner)
        branch = graph.dense(inner, f"{name}.mlp.dense_4h_to_h", 4 * hidden, hidden)
    return graph.node("Add", value, branch)


def _attention(
    graph: DrawnGraph,
    config: BloomConfig,
    value: str,
    index: int,
    past: Pair,
    biases: tuple[str, str],
) -> str:
    """Causal attention over the cache and the new tokens, batch and heads as one axis."""
    name, hidden = f"transformer.h.{index}.self_attention", config.hidden
    heads, head = config.heads, config.shape.head
    fused = graph.dense(value, f"{name}.query_key_value", hidden, 3 * hidden)
    batch, length = graph.size(fused, 0), graph.size(fused, 1)
    fused = graph.node("Reshape", fused, graph.shape([batch, length, heads, 3, head]))
    query, key, values = (
        graph.node(
            "Transpose",
            graph.node("Gather", fused, graph.constant(part), axis=3),
            perm=[0, 2, 1, 3],
        )
        for part in range(3)
    )
    key, values = grow_cache(graph, index, past, (key, values), config.shape)
    rows, total = graph.node("Mul", batch, graph.constant(heads)), graph.size(key, 2)
    query = graph.node("Reshape", query, graph.shape([rows, -1, head]))
    turned = graph.node(
        "Transpose", graph.node("Reshape", key, graph.shape([rows, -1, head])), perm=[0, 2, 1]
    )
    scores = graph.node("MatMul", query, turned)
    scores = graph.node("Mul", scores, graph.constant(head**-0.5))
    scores = graph.node("Add", scores, biases[0])
    scores = graph.node("Reshape", scores, graph.shape([batch, heads, length, total]))
    shares = graph.node("Softmax", graph.node("Add", scores, biases[1]), axis=-1)
    shares = graph.node("Reshape", shares, graph.shape([rows, length, total]))
    values = graph.node("Reshape", values, graph.shape([rows, -1, head]))
    mixed = graph.node("MatMul", shares, values)
    mixed = graph.node("Reshape", mixed, graph.shape([batch, heads, length, head]))
    return graph.dense(merge_heads(graph, mixed, hidden), f"{name}.dense", hidden, hidden)


def _gelu(graph: DrawnGraph, value: str) -> str:
    """Compute `0.5 x (1 + tanh(sqrt(2 / pi) x (1 + 0.044715 x x)))`."""
    half = graph.node("Mul", value, graph.constant(0.5))
    square = graph.node("Mul", graph.node("Mul", value, graph.constant(0.044715)), value)
    gate = graph.node("Add", square, graph.constant(1.0))
    scaled = graph.node("Mul", value, graph.constant(math.sqrt(2 / math.pi)))
    wave = graph.node("Tanh", graph.node("Mul", scaled, gate))
    return graph.node("Mul", half, graph.node("Add", wave, graph.constant(1.0)))
