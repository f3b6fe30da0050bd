"""Whisper (Radford et al. 2022), as three graphs with the names that optimum exports.

    encoder_model            input_features [batch, mels, frames] -> last_hidden_state
    decoder_model            input_ids, encoder_hidden_states -> logits, all caches
    decoder_with_past_model  input_ids, all caches -> logits, the decoder's own caches

Caches are `{past_key_values,present}.{layer}.{decoder,encoder}.{key,value}`
[batch, heads, tokens, head]; those of the encoder never change after the first step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from models.recipe.graph import Graph, Weights

_LOWEST = float(np.finfo(np.float32).min)
_EPSILON = 1e-5
_DECODER = "model.decoder"
_STEPS = "decoder_sequence_length"
_PAST = "past_decoder_sequence_length"
_TOTAL = "total_decoder_sequence_length"


@dataclass(frozen=True)
class WhisperConfig:
    """Sizes of a model.

    Attributes:
        vocab: Number of tokens.
        hidden: Width of both residual streams.
        heads: Attention heads.
        layers: Blocks of the encoder, and of the decoder.
        inner: Width of the MLPs.
        mels: Mel bands.
        frames: Positions of the encoder; the input has twice as many.
        longest: Positions of the decoder.
    """

    vocab: int = 51865
    hidden: int = 512
    heads: int = 8
    layers: int = 6
    inner: int = 2048
    mels: int = 80
    frames: int = 1500
    longest: int = 448

    @property
    def head(self) -> int:
        """Width of a head."""
        return self.hidden // self.heads


Pair = tuple[str, str]


def encoder(config: WhisperConfig, weights: Weights) -> Graph:
    """Build `encoder_model`."""
    graph = Graph("main_graph", weights)
    shape = ["batch_size", config.mels, 2 * config.frames]
    value = graph.input("input_features", TensorProto.FLOAT, shape)
    for name, stride in (("conv1", 1), ("conv2", 2)):
        with graph.scope(name):
            value = graph.conv(value, name, (3,), strides=(stride,), padding=(1,))
        value = graph.gelu(value)
    value = graph.node("Transpose", value, perm=[0, 2, 1])
    value = graph.node("Add", value, graph.weight("embed_positions.weight"))
    for index in range(config.layers):
        name = f"layers.{index}"
        with graph.scope(name):
            normed = _norm(graph, value, name, "self_attn_layer_norm")
            with graph.scope("self_attn"):
                pair = _key_value(graph, config, normed, f"{name}.self_attn")
                branch = _attend(graph, config, normed, f"{name}.self_attn", pair, None)
            value = graph.node("Add", value, branch)
            value = _mlp(graph, value, name)
    value = _norm(graph, value, "", "layer_norm")
    graph.output(value, "last_hidden_state", ["batch_size", config.frames, config.hidden])
    return graph


def decoder(config: WhisperConfig, weights: Weights) -> Graph:
    """Build `decoder_model`, the first step: it also makes the caches of cross-attention."""
    graph = Graph("main_graph", weights)
    ids = graph.input("input_ids", TensorProto.INT64, ["batch_size", _STEPS])
    shape = ["batch_size", config.frames, config.hidden]
    states = graph.input("encoder_hidden_states", TensorProto.FLOAT, shape)
    with graph.scope("model"), graph.scope("decoder"):
        length = graph.size(ids, 1)
        value = _embed(graph, ids, None)
        mask = _mask(graph, length, None)
        for index in range(config.layers):
            name = f"{_DECODER}.layers.{index}"
            with graph.scope(f"layers.{index}"):
                value, own = _self_attention(graph, config, value, name, None, mask)
                with graph.scope("encoder_attn"):
                    cross = _key_value(graph, config, states, f"{name}.encoder_attn")
                _give(graph, config, index, "decoder", own, _STEPS)
                _give(graph, config, index, "encoder", cross, config.frames)
                value = _cross_attention(graph, config, value, name, cross)
                value = _mlp(graph, value, name)
    _head(graph, config, value)
    return graph


def decoder_with_past(config: WhisperConfig, weights: Weights) -> Graph:
    """Build `decoder_with_past_model`, every later step: it takes all caches."""
    graph = Graph("main_graph", weights)
    ids = graph.input("input_ids", TensorProto.INT64, ["batch_size", _STEPS])
    caches = [
        (
            _take(graph, config, i, "decoder", _PAST),
            _take(graph, config, i, "encoder", config.frames),
        )
        for i in range(config.layers)
    ]
    with graph.scope("model"), graph.scope("decoder"):
        past = graph.size(caches[0][0][0], 2)
        length = graph.size(ids, 1)
        value = _embed(graph, ids, past)
        mask = _mask(graph, length, past)
        for index, (before, cross) in enumerate(caches):
            name = f"{_DECODER}.layers.{index}"
            with graph.scope(f"layers.{index}"):
                value, own = _self_attention(graph, config, value, name, before, mask)
                _give(graph, config, index, "decoder", own, _TOTAL)
                value = _cross_attention(graph, config, value, name, cross)
                value = _mlp(graph, value, name)
    _head(graph, config, value)
    return graph


def _take(graph: Graph, config: WhisperConfig, index: int, side: str, tokens: int | str) -> Pair:
    """Declare one cache as two inputs."""
    shape = ["batch_size", config.heads, tokens, config.head]
    names = [f"past_key_values.{index}.{side}.{kind}" for kind in ("key", "value")]
    key, value = (graph.input(name, TensorProto.FLOAT, shape) for name in names)
    return key, value


def _give(
    graph: Graph, config: WhisperConfig, index: int, side: str, pair: Pair, tokens: int | str
) -> None:
    """Make one cache two outputs."""
    shape = ["batch_size", config.heads, tokens, config.head]
    for kind, value in zip(("key", "value"), pair, strict=True):
        graph.output(value, f"present.{index}.{side}.{kind}", shape)


def _embed(graph: Graph, ids: str, past: str | None) -> str:
    """Add the embeddings of tokens and of their positions."""
    with graph.scope("embed_tokens"):
        tokens = graph.node("Gather", graph.weight(f"{_DECODER}.embed_tokens.weight"), ids)
    with graph.scope("embed_positions"):
        rows = graph.node("Range", graph.constant(0), graph.size(ids, 1), graph.constant(1))
        if past is not None:
            rows = graph.node("Add", rows, past)
        table = graph.weight(f"{_DECODER}.embed_positions.weight")
        positions = graph.node("Gather", table, rows)
    return graph.node("Add", tokens, positions)


def _mask(graph: Graph, length: str, past: str | None) -> str:
    """Return what is added to scores, [sequence, total]: 0 where a token may look."""
    rows = graph.node("Range", graph.constant(0), length, graph.constant(1))
    total = length
    if past is not None:
        rows, total = graph.node("Add", rows, past), graph.node("Add", past, length)
    columns = graph.node("Range", graph.constant(0), total, graph.constant(1))
    allowed = graph.node("LessOrEqual", graph.unsqueeze(columns, 0), graph.unsqueeze(rows, 1))
    return graph.node("Where", allowed, graph.constant(0.0), graph.constant(_LOWEST))


def _self_attention(
    graph: Graph, config: WhisperConfig, value: str, name: str, past: Pair | None, mask: str
) -> tuple[str, Pair]:
    """Causal attention, added to the stream; returns the grown cache too."""
    normed = _norm(graph, value, name, "self_attn_layer_norm")
    with graph.scope("self_attn"):
        key, values = _key_value(graph, config, normed, f"{name}.self_attn")
        if past is not None:
            key = graph.node("Concat", past[0], key, axis=2)
            values = graph.node("Concat", past[1], values, axis=2)
        branch = _attend(graph, config, normed, f"{name}.self_attn", (key, values), mask)
    return graph.node("Add", value, branch), (key, values)


def _cross_attention(graph: Graph, config: WhisperConfig, value: str, name: str, pair: Pair) -> str:
    """Attention over what was heard, added to the stream."""
    normed = _norm(graph, value, name, "encoder_attn_layer_norm")
    with graph.scope("encoder_attn"):
        branch = _attend(graph, config, normed, f"{name}.encoder_attn", pair, None)
    return graph.node("Add", value, branch)


def _key_value(graph: Graph, config: WhisperConfig, value: str, name: str) -> Pair:
    """Project to keys and values, [batch, heads, tokens, head] each; the key has no bias."""
    with graph.scope("k_proj"):
        key = graph.linear(value, f"{name}.k_proj", bias=False)
    key = _split(graph, config, key)
    with graph.scope("v_proj"):
        values = graph.linear(value, f"{name}.v_proj")
    return key, _split(graph, config, values)


def _split(graph: Graph, config: WhisperConfig, value: str) -> str:
    batch, tokens = graph.size(value, 0), graph.size(value, 1)
    heads = graph.node("Reshape", value, graph.shape([batch, tokens, config.heads, config.head]))
    return graph.node("Transpose", heads, perm=[0, 2, 1, 3])


def _attend(
    graph: Graph, config: WhisperConfig, value: str, name: str, pair: Pair, mask: str | None
) -> str:
    """Compute `out(softmax(q k^T + mask) v)`; the query is scaled before it is split."""
    with graph.scope("q_proj"):
        query = graph.linear(value, f"{name}.q_proj")
    query = graph.node("Mul", query, graph.constant(config.head**-0.5))
    query = _split(graph, config, query)
    scores = graph.node("MatMul", query, graph.node("Transpose", pair[0], perm=[0, 1, 3, 2]))
    if mask is not None:
        scores = graph.node("Add", scores, mask)
    mixed = graph.node("MatMul", graph.node("Softmax", scores, axis=-1), pair[1])
    mixed = graph.node("Transpose", mixed, perm=[0, 2, 1, 3])
    batch, tokens = graph.size(value, 0), graph.size(value, 1)
    mixed = graph.node("Reshape", mixed, graph.shape([batch, tokens, config.hidden]))
    with graph.scope("out_proj"):
        return graph.linear(mixed, f"{name}.out_proj")


def _mlp(graph: Graph, value: str, name: str) -> str:
    """Two linear layers with a GELU between, added to the stream."""
    inner = _norm(graph, value, name, "final_layer_norm")
    with graph.scope("fc1"):
        inner = graph.linear(inner, f"{name}.fc1")
    with graph.scope("activation_fn"):
        inner = graph.gelu(inner)
    with graph.scope("fc2"):
        inner = graph.linear(inner, f"{name}.fc2")
    return graph.node("Add", value, inner)


def _norm(graph: Graph, value: str, owner: str, name: str) -> str:
    with graph.scope(name):
        return graph.layer_norm(value, f"{owner}.{name}".removeprefix("."), _EPSILON)


def _head(graph: Graph, config: WhisperConfig, value: str) -> None:
    """Normalise and score against the token embedding; logits come first."""
    with graph.scope("model"), graph.scope("decoder"):
        value = _norm(graph, value, _DECODER, "layer_norm")
    with graph.scope("proj_out"):
        table = graph.weight(f"{_DECODER}.embed_tokens.weight")
        logits = graph.node("MatMul", value, graph.node("Transpose", table, perm=[1, 0]))
    graph.output(logits, "logits", ["batch_size", _STEPS, config.vocab])
    graph.sort_outputs(first="logits")
