"""Llama language models (Touvron et al. 2023), with the names of Hugging Face's `LlamaForCausalLM`.

    input_ids [batch, sequence] (or inputs_embeds [batch, sequence, hidden]),
    attention_mask [batch, total], position_ids [batch, sequence],
    past_key_values.{layer}.{key,value} [batch, kv_heads, past, head]
      -> logits [batch, sequence, vocab], present.{layer}.{key,value} [batch, kv_heads, total, head]

with total = past + sequence; past may be 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from models.recipe.graph import FloatArray, Graph, Weights
from models.recipe.seeded import Seeded

_LOWEST = float(np.finfo(np.float32).min)
_EMBEDDING = "model.embed_tokens.weight"


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes of a decoder.

    Attributes:
        vocab: Number of tokens.
        hidden: Width of the residual stream.
        inner: Width of the gated MLP.
        layers: Number of blocks.
        heads: Query heads.
        kv_heads: Key and value heads; divides `heads`.
        head: Width of a head, even.
        epsilon: Of every RMSNorm.
        theta: Base of the rotary frequencies.
    """

    vocab: int
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    epsilon: float
    theta: float


@dataclass(frozen=True)
class _Step:
    """What all layers of one step share: values by name."""

    cos: str
    sin: str
    mask: str


def decoder(config: LlamaConfig, weights: Weights, *, embeds: bool = False) -> Graph:
    """Build the decoder; with `embeds` it takes embeddings in place of token ids."""
    graph = Graph("main_graph", weights)
    steps: tuple[str, str] = ("batch_size", "sequence_length")
    given = (
        graph.input("inputs_embeds", TensorProto.FLOAT, [*steps, config.hidden])
        if embeds
        else graph.input("input_ids", TensorProto.INT64, steps)
    )
    total = "total_sequence_length"
    attention = graph.input("attention_mask", TensorProto.INT64, ["batch_size", total])
    positions = graph.input("position_ids", TensorProto.INT64, steps)
    cached: list[tuple[str, str]] = []
    for index in range(config.layers):
        shape = ["batch_size", config.kv_heads, "past_sequence_length", config.head]
        names = [f"past_key_values.{index}.{kind}" for kind in ("key", "value")]
        key, past_value = (graph.input(name, TensorProto.FLOAT, shape) for name in names)
        cached.append((key, past_value))
    with graph.scope("model"):
        value = given if embeds else _embed(graph, given)
        mask = _mask(graph, value, attention)
        with graph.scope("rotary_emb"):
            cos, sin = _rotary(graph, config, positions)
        step = _Step(graph.unsqueeze(cos, 1), graph.unsqueeze(sin, 1), mask)
        for index, past in enumerate(cached):
            with graph.scope(f"layers.{index}"):
                value = _layer(graph, config, value, index, past, step)
        with graph.scope("norm"):
            value = _rms_norm(graph, value, "model.norm", config.epsilon)
    with graph.scope("lm_head"):
        head = graph.node("Transpose", graph.weight(_EMBEDDING), perm=[1, 0])
        logits = graph.node("MatMul", value, head)
    graph.output(logits, "logits", [*steps, config.vocab])
    graph.sort_outputs(first="logits")
    return graph


def _embed(graph: Graph, ids: str) -> str:
    """Look tokens up."""
    with graph.scope("embed_tokens"):
        return graph.node("Gather", graph.weight(_EMBEDDING), ids)


def _mask(graph: Graph, value: str, attention: str) -> str:
    """Return what is added to scores, [batch, 1, sequence, total]: 0 where allowed."""
    length, total = graph.size(value, 1), graph.size(attention, 1)
    past = graph.node("Sub", total, length)
    rows = graph.node("Range", graph.constant(0), length, graph.constant(1))
    rows = graph.unsqueeze(graph.node("Add", rows, past), 1)
    columns = graph.node("Range", graph.constant(0), total, graph.constant(1))
    causal = graph.node("LessOrEqual", graph.unsqueeze(columns, 0), rows)
    real = graph.node("Cast", attention, to=TensorProto.BOOL)
    allowed = graph.node("And", graph.unsqueeze(causal, 0, 1), graph.unsqueeze(real, 1, 2))
    return graph.node("Where", allowed, graph.constant(0.0), graph.constant(_LOWEST))


def _rotary(graph: Graph, config: LlamaConfig, positions: str) -> tuple[str, str]:
    """Return cos and sin of the rotary angles, each [batch, sequence, head]."""
    exponents = np.arange(0, config.head, 2, dtype=np.float32) / np.float32(config.head)
    frequencies = (1.0 / np.float32(config.theta) ** exponents).astype(np.float32)
    column = graph.unsqueeze(graph.constant(frequencies), 0, 2)
    shape = graph.shape([graph.size(positions, 0), config.head // 2, 1])
    column = graph.node("Expand", column, shape)
    row = graph.node("Cast", graph.unsqueeze(positions, 1), to=TensorProto.FLOAT)
    angles = graph.node("Transpose", graph.node("MatMul", column, row), perm=[0, 2, 1])
    doubled = graph.node("Concat", angles, angles, axis=-1)
    return graph.node("Cos", doubled), graph.node("Sin", doubled)


def _layer(
    graph: Graph,
    config: LlamaConfig,
    value: str,
    index: int,
    past: tuple[str, str],
    step: _Step,
) -> str:
    """One block: attention and gated MLP, each over a normalised copy, each added."""
    name = f"model.layers.{index}"
    with graph.scope("input_layernorm"):
        normed = _rms_norm(graph, value, f"{name}.input_layernorm", config.epsilon)
    with graph.scope("self_attn"):
        branch = _attention(graph, config, normed, index, past, step)
    value = graph.node("Add", value, branch)
    with graph.scope("post_attention_layernorm"):
        normed = _rms_norm(graph, value, f"{name}.post_attention_layernorm", config.epsilon)
    with graph.scope("mlp"):
        branch = _gated_mlp(graph, normed, f"{name}.mlp")
    return graph.node("Add", value, branch)


def _attention(
    graph: Graph,
    config: LlamaConfig,
    value: str,
    index: int,
    past: tuple[str, str],
    step: _Step,
) -> str:
    """Grouped causal attention over the cache and the new tokens."""
    name = f"model.layers.{index}.self_attn"
    batch, length = graph.size(value, 0), graph.size(value, 1)
    heads: dict[str, str] = {}
    for part in ("q_proj", "k_proj", "v_proj"):
        with graph.scope(part):
            flat = graph.linear(value, f"{name}.{part}", bias=False)
        split = graph.node("Reshape", flat, graph.shape([batch, length, -1, config.head]))
        heads[part] = graph.node("Transpose", split, perm=[0, 2, 1, 3])
    query = _rotate(graph, config, heads["q_proj"], step)
    key = graph.node("Concat", past[0], _rotate(graph, config, heads["k_proj"], step), axis=2)
    values = graph.node("Concat", past[1], heads["v_proj"], axis=2)
    shape = ["batch_size", config.kv_heads, "total_sequence_length", config.head]
    graph.output(key, f"present.{index}.key", shape)
    graph.output(values, f"present.{index}.value", shape)
    key, values = _repeat(graph, config, key), _repeat(graph, config, values)
    scores = graph.node("MatMul", query, graph.node("Transpose", key, perm=[0, 1, 3, 2]))
    scores = graph.node("Mul", scores, graph.constant(config.head**-0.5))
    shares = graph.node("Softmax", graph.node("Add", scores, step.mask), axis=-1)
    mixed = graph.node("Transpose", graph.node("MatMul", shares, values), perm=[0, 2, 1, 3])
    mixed = graph.node("Reshape", mixed, graph.shape([batch, length, -1]))
    with graph.scope("o_proj"):
        return graph.linear(mixed, f"{name}.o_proj", bias=False)


def _rotate(graph: Graph, config: LlamaConfig, value: str, step: _Step) -> str:
    """Rotary positions (Su et al. 2021): `x cos + rotate_half(x) sin`."""
    half = config.head // 2
    first = graph.slice(value, 0, half, 3)
    second = graph.slice(value, half, np.iinfo(np.int64).max, 3)
    turned = graph.node("Concat", graph.node("Neg", second), first, axis=-1)
    plain = graph.node("Mul", value, step.cos)
    return graph.node("Add", plain, graph.node("Mul", turned, step.sin))


def _repeat(graph: Graph, config: LlamaConfig, value: str) -> str:
    """Give every query head its own copy of the head it shares: the exporter's `repeat_kv`."""
    group = config.heads // config.kv_heads
    batch, total = graph.size(value, 0), graph.size(value, 2)
    apart = graph.unsqueeze(value, 2)
    wide = graph.shape([batch, config.kv_heads, group, total, config.head])
    flat = graph.shape([batch, config.heads, total, config.head])
    return graph.node("Reshape", graph.node("Expand", apart, wide), flat)


def _rms_norm(graph: Graph, value: str, name: str, epsilon: float) -> str:
    """Scale rows to unit root-mean-square (Zhang & Sennrich 2019), spelled out."""
    square = graph.node("Pow", value, graph.constant(2.0))
    mean = graph.node("ReduceMean", square, axes=[-1], keepdims=1)
    root = graph.node("Sqrt", graph.node("Add", mean, graph.constant(epsilon)))
    inverse = graph.node("Div", graph.constant(1.0), root)
    return graph.node("Mul", graph.weight(f"{name}.weight"), graph.node("Mul", value, inverse))


def _gated_mlp(graph: Graph, value: str, name: str) -> str:
    """Compute `down(silu(gate(x)) * up(x))` (Shazeer 2020)."""
    with graph.scope("gate_proj"):
        gate = graph.linear(value, f"{name}.gate_proj", bias=False)
    with graph.scope("act_fn"):
        gate = graph.node("Mul", gate, graph.node("Sigmoid", gate))
    with graph.scope("up_proj"):
        up = graph.linear(value, f"{name}.up_proj", bias=False)
    product = graph.node("Mul", gate, up)
    with graph.scope("down_proj"):
        return graph.linear(product, f"{name}.down_proj", bias=False)


def seeded_weights(config: LlamaConfig, seed: int) -> dict[str, FloatArray]:
    """Return random weights of a seed."""
    draw, hidden = Seeded(seed), config.hidden
    made = {_EMBEDDING: draw.normal(config.vocab, hidden, scale=1.0)}
    outputs = {
        "q_proj": config.heads * config.head,
        "k_proj": config.kv_heads * config.head,
        "v_proj": config.kv_heads * config.head,
    }
    for index in range(config.layers):
        name = f"model.layers.{index}"
        for part, width in outputs.items():
            made |= draw.linear(f"{name}.self_attn.{part}", hidden, width, bias=False)
        made |= draw.linear(f"{name}.self_attn.o_proj", outputs["q_proj"], hidden, bias=False)
        for part in ("gate_proj", "up_proj"):
            made |= draw.linear(f"{name}.mlp.{part}", hidden, config.inner, bias=False)
        made |= draw.linear(f"{name}.mlp.down_proj", config.inner, hidden, bias=False)
        for part in ("input_layernorm", "post_attention_layernorm"):
            made |= draw.norm(f"{name}.{part}", hidden, bias=False)
    return made | draw.norm("model.norm", hidden, bias=False)
