"""T5 (Raffel et al. 2020), with the names of Hugging Face's `T5ForConditionalGeneration`.

Three graphs, as optimum exports them:

    encoder            input_ids, attention_mask [batch, encoder_sequence]
      -> last_hidden_state [batch, encoder_sequence, hidden]
    decoder            input_ids [batch, sequence], encoder_attention_mask, encoder_hidden_states
      -> logits, present.{layer}.{decoder,encoder}.{key,value} [batch, heads, tokens, head]
    decoder with past  input_ids, encoder_attention_mask, past_key_values.{layer}...
      -> logits, present.{layer}.decoder.{key,value}

Scores are not scaled; what is added to them is looked up by the distance of key and query, which
falls into one of a few buckets, wider the farther away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from onnx import TensorProto

from models.recipe.attention import LOWEST, Pair, attend, merge_heads, padding_mask, split_heads
from models.recipe.drawn import DrawnGraph
from models.recipe.graph import Dim

_STEPS = ("batch_size", "decoder_sequence_length")
_HEARD = ("batch_size", "encoder_sequence_length")
_EPSILON = 1e-6


@dataclass(frozen=True)
class T5Config:
    """Sizes of encoder and decoder.

    Attributes:
        vocab: Number of tokens.
        hidden: Width of the residual stream.
        inner: Width of the MLP.
        layers: Number of blocks of each.
        heads: Number of attention heads.
        head: Width of a head.
        buckets: Of distances; a multiple of four.
        farthest: From this distance on all fall into the last bucket.
    """

    vocab: int
    hidden: int
    inner: int
    layers: int
    heads: int
    head: int
    buckets: int = 32
    farthest: int = 128


def encoder(config: T5Config, seed: int) -> DrawnGraph:
    """Build the encoder with weights of a seed."""
    graph = DrawnGraph(seed)
    ids = graph.input("input_ids", TensorProto.INT64, _HEARD)
    attention = graph.input("attention_mask", TensorProto.INT64, _HEARD)
    with graph.scope("encoder"):
        value = graph.embed(ids, "shared", config.vocab, config.hidden)
        bias = _distances(graph, config, graph.size(ids, 1), None, "encoder")
        bias = graph.node("Add", bias, padding_mask(graph, attention))
        for index in range(config.layers):
            name = f"encoder.block.{index}"
            with graph.scope(f"block.{index}"):
                value = _encode(graph, config, value, name, bias)
        value = _norm(graph, config, value, "encoder.final_layer_norm")
    graph.output(value, "last_hidden_state", [*_HEARD, config.hidden])
    return graph


def _encode(graph: DrawnGraph, config: T5Config, value: str, name: str, bias: str) -> str:
    """One block of the encoder."""
    own = f"{name}.layer.0.SelfAttention"
    normed = _norm(graph, config, value, f"{name}.layer.0.layer_norm")
    keys = _key_value(graph, config, normed, own)
    value = graph.node("Add", value, _attend(graph, config, normed, own, keys, bias))
    return _mlp(graph, config, value, f"{name}.layer.1")


def decoder(config: T5Config, seed: int, *, with_past: bool) -> DrawnGraph:
    """Build the first step of the decoder, or the steps that go on from a past."""
    graph = DrawnGraph(seed)
    ids = graph.input("input_ids", TensorProto.INT64, _STEPS)
    attention = graph.input("encoder_attention_mask", TensorProto.INT64, _HEARD)
    heard = None
    if not with_past:
        heard = graph.input("encoder_hidden_states", TensorProto.FLOAT, [*_HEARD, config.hidden])
    pasts = [_take(graph, config, index) for index in range(config.layers)] if with_past else []
    with graph.scope("decoder"):
        value = graph.embed(ids, "shared", config.vocab, config.hidden)
        past = graph.size(pasts[0][0][0], 2) if pasts else None
        bias = _distances(graph, config, graph.size(ids, 1), past, "decoder")
        cross = padding_mask(graph, attention)
        for index in range(config.layers):
            given = pasts[index] if pasts else None
            with graph.scope(f"block.{index}"):
                value = _decode(graph, config, value, index, (bias, cross), heard, given)
        value = _norm(graph, config, value, "decoder.final_layer_norm")
        value = graph.node("Mul", value, graph.constant(config.hidden**-0.5))
    with graph.scope("lm_head"):
        turned = graph.node("Transpose", graph.weight("shared.weight"), perm=[1, 0])
        logits = graph.node("MatMul", value, turned)
    graph.output(logits, "logits", [*_STEPS, config.vocab])
    graph.sort_outputs(first="logits")
    return graph


def _decode(
    graph: DrawnGraph,
    config: T5Config,
    value: str,
    index: int,
    biases: tuple[str, str],
    heard: str | None,
    past: tuple[Pair, Pair] | None,
) -> str:
    """One block of the decoder."""
    name = f"decoder.block.{index}"
    own = f"{name}.layer.0.SelfAttention"
    normed = _norm(graph, config, value, f"{name}.layer.0.layer_norm")
    keys = _key_value(graph, config, normed, own)
    if past is not None:
        key, values = (
            graph.node("Concat", p, n, axis=2) for p, n in zip(past[0], keys, strict=True)
        )
        keys = key, values
    _give(graph, config, index, "decoder", keys)
    value = graph.node("Add", value, _attend(graph, config, normed, own, keys, biases[0]))
    other = f"{name}.layer.1.EncDecAttention"
    normed = _norm(graph, config, value, f"{name}.layer.1.layer_norm")
    if past is not None:
        cross = past[1]
    else:
        assert heard is not None
        cross = _key_value(graph, config, heard, other)
        _give(graph, config, index, "encoder", cross)
    bias = _nothing(graph, config, normed, cross[0], biases[1])
    value = graph.node("Add", value, _attend(graph, config, normed, other, cross, bias))
    return _mlp(graph, config, value, f"{name}.layer.2")


def _nothing(graph: DrawnGraph, config: T5Config, value: str, key: str, mask: str) -> str:
    """Add a mask to zeros, as the model does where it has no distances."""
    shape = graph.shape([1, config.heads, graph.size(value, 1), graph.size(key, 2)])
    return graph.node("Add", graph.node("ConstantOfShape", shape), mask)


def _distances(
    graph: DrawnGraph, config: T5Config, length: str, past: str | None, stack: str
) -> str:
    """Return what is added to scores, [1, heads, sequence, total], looked up by distance."""
    total, bidirectional = length, stack == "encoder"
    rows = graph.node("Range", graph.constant(0), length, graph.constant(1))
    if past is not None:
        total, rows = graph.node("Add", length, past), graph.node("Add", rows, past)
    columns = graph.node("Range", graph.constant(0), total, graph.constant(1))
    rows, columns = graph.unsqueeze(rows, 1), graph.unsqueeze(columns, 0)
    distance = graph.node("Sub", columns, rows)
    buckets = _buckets(graph, config, distance, bidirectional=bidirectional)
    name = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias"
    found = graph.embed(buckets, name, config.buckets, config.heads)
    bias = graph.unsqueeze(graph.node("Transpose", found, perm=[2, 0, 1]), 0)
    if bidirectional:
        return bias
    seen = graph.node("LessOrEqual", columns, rows)
    mask = graph.node("Where", seen, graph.constant(0.0), graph.constant(LOWEST))
    return graph.node("Add", bias, graph.unsqueeze(mask, 0, 0))


def _buckets(graph: DrawnGraph, config: T5Config, distance: str, *, bidirectional: bool) -> str:
    """The bucket of each distance: one each for near ones, then logarithmically wider."""
    count = config.buckets // 2 if bidirectional else config.buckets
    near = count // 2
    zero = graph.constant(0)
    if bidirectional:
        ahead = graph.node("Cast", graph.node("Greater", distance, zero), to=TensorProto.INT64)
        offset = graph.node("Mul", ahead, graph.constant(count))
        distance = graph.node("Abs", distance)
    else:
        offset = None
        distance = graph.node("Neg", graph.node("Min", distance, zero))
    close = graph.node("Less", distance, graph.constant(near))
    part = graph.node("Cast", distance, to=TensorProto.FLOAT)
    part = graph.node("Log", graph.node("Div", part, graph.constant(float(near))))
    part = graph.node("Div", part, graph.constant(math.log(config.farthest / near)))
    part = graph.node("Mul", part, graph.constant(float(count - near)))
    wide = graph.node("Add", graph.node("Cast", part, to=TensorProto.INT64), graph.constant(near))
    wide = graph.node("Min", wide, graph.constant(count - 1))
    bucket = graph.node("Where", close, distance, wide)
    return bucket if offset is None else graph.node("Add", offset, bucket)


def _take(graph: DrawnGraph, config: T5Config, index: int) -> tuple[Pair, Pair]:
    """Declare the caches of a layer: its own, and that of what was read."""
    pairs: list[Pair] = []
    for side, tokens in (("decoder", "past_decoder_sequence_length"), ("encoder", _HEARD[1])):
        shape: list[Dim] = ["batch_size", config.heads, tokens, config.head]
        names = [f"past_key_values.{index}.{side}.{kind}" for kind in ("key", "value")]
        key, value = (graph.input(name, TensorProto.FLOAT, shape) for name in names)
        pairs.append((key, value))
    return pairs[0], pairs[1]


def _give(graph: DrawnGraph, config: T5Config, index: int, side: str, pair: Pair) -> None:
    """Make one cache two outputs."""
    tokens = _HEARD[1] if side == "encoder" else "total_decoder_sequence_length"
    shape: list[Dim] = ["batch_size", config.heads, tokens, config.head]
    for kind, value in zip(("key", "value"), pair, strict=True):
        graph.output(value, f"present.{index}.{side}.{kind}", shape)


def _key_value(graph: DrawnGraph, config: T5Config, value: str, name: str) -> Pair:
    """Project to keys and values, [batch, heads, tokens, head] each."""
    width = config.heads * config.head
    with graph.scope(name.rpartition(".")[2]):
        key, values = (
            split_heads(
                graph,
                graph.dense(value, f"{name}.{part}", config.hidden, width, bias=False),
                config.head,
            )
            for part in "kv"
        )
    return key, values


def _attend(
    graph: DrawnGraph, config: T5Config, value: str, name: str, keys: Pair, bias: str
) -> str:
    """Compute `o(softmax(q k^T + bias) v)`."""
    width = config.heads * config.head
    with graph.scope(name.rpartition(".")[2]):
        flat = graph.dense(value, f"{name}.q", config.hidden, width, bias=False)
        query = split_heads(graph, flat, config.head)
        mixed = merge_heads(graph, attend(graph, query, keys, scale=None, mask=bias), width)
        return graph.dense(mixed, f"{name}.o", width, config.hidden, bias=False)


def _mlp(graph: DrawnGraph, config: T5Config, value: str, name: str) -> str:
    """Two linear layers with a ReLU between, over a normalised copy, added to the stream."""
    inner = _norm(graph, config, value, f"{name}.layer_norm")
    with graph.scope("DenseReluDense"):
        dense = f"{name}.DenseReluDense"
        inner = graph.dense(inner, f"{dense}.wi", config.hidden, config.inner, bias=False)
        inner = graph.node("Relu", inner)
        inner = graph.dense(inner, f"{dense}.wo", config.inner, config.hidden, bias=False)
    return graph.node("Add", value, inner)


def _norm(graph: DrawnGraph, config: T5Config, value: str, name: str) -> str:
    return graph.normalise_rms(value, name, config.hidden, _EPSILON)
