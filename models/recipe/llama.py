"""Llama language models (Touvron et al. 2023), with the names of Hugging Face's `LlamaForCausalLM`.

    input_ids [batch, sequence] (or inputs_embeds [batch, sequence, hidden]),
    attention_mask [batch, total], position_ids [batch, sequence],
    past_key_values.{layer}.{key,value} [batch, kv_heads, past, head]
      -> logits [batch, sequence, vocab], present.{layer}.{key,value} [batch, kv_heads, total, head]

with total = past + sequence; past may be 0. Qwen2 (Yang et al. 2024) has biases on query, key and
value, and its larger sizes a head of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from onnx import TensorProto

from models.recipe.attention import (
    Heads,
    Pair,
    attend,
    causal_mask,
    grow_cache,
    merge_heads,
    repeat_heads,
    split_heads,
    take_cache,
)
from models.recipe.graph import FloatArray, Graph, Weights
from models.recipe.rotary import Waves, rotate, waves
from models.recipe.seeded import Seeded

EMBEDDING = "model.embed_tokens.weight"


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
        biased: Whether query, key and value have a bias.
        tied: Whether the token embedding is the head too.
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
    biased: bool = False
    tied: bool = True

    @property
    def shape(self) -> Heads:
        """How attention is divided."""
        return Heads(self.heads, self.kv_heads, self.head)


@dataclass(frozen=True)
class Step:
    """What all layers of one step share: values by name."""

    wave: Waves
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
    attention = graph.input(
        "attention_mask", TensorProto.INT64, ["batch_size", "total_sequence_length"]
    )
    positions = graph.input("position_ids", TensorProto.INT64, steps)
    cached = take_cache(graph, config.layers, config.shape)
    with graph.scope("model"):
        value = given if embeds else embed(graph, given)
        step = step_of(graph, config, value, attention, positions)
        for index, past in enumerate(cached):
            with graph.scope(f"layers.{index}"):
                value = layer(graph, config, value, index, past, step)
    head(graph, config, value)
    return graph


def embed(graph: Graph, ids: str) -> str:
    """Look tokens up."""
    with graph.scope("embed_tokens"):
        return graph.node("Gather", graph.weight(EMBEDDING), ids)


def step_of(graph: Graph, config: LlamaConfig, value: str, attention: str, positions: str) -> Step:
    """Compute the mask and the rotary waves of a step."""
    mask = causal_mask(graph, value, attention)
    with graph.scope("rotary_emb"):
        return Step(waves(graph, positions, config.head, config.theta), mask)


def layer(graph: Graph, config: LlamaConfig, value: str, index: int, past: Pair, step: Step) -> str:
    """One block: attention and gated MLP, each over a normalised copy, each added."""
    name = f"model.layers.{index}"
    with graph.scope("input_layernorm"):
        normed = graph.rms_norm(value, f"{name}.input_layernorm", config.epsilon)
    with graph.scope("self_attn"):
        branch = _attention(graph, config, normed, index, past, step)
    value = graph.node("Add", value, branch)
    with graph.scope("post_attention_layernorm"):
        normed = graph.rms_norm(value, f"{name}.post_attention_layernorm", config.epsilon)
    with graph.scope("mlp"):
        branch = _gated_mlp(graph, normed, f"{name}.mlp")
    return graph.node("Add", value, branch)


def _attention(
    graph: Graph, config: LlamaConfig, value: str, index: int, past: Pair, step: Step
) -> str:
    """Grouped causal attention over the cache and the new tokens."""
    name, apart = f"model.layers.{index}.self_attn", dict[str, str]()
    for part in ("q_proj", "k_proj", "v_proj"):
        with graph.scope(part):
            flat = graph.linear(value, f"{name}.{part}", bias=config.biased)
        apart[part] = split_heads(graph, flat, config.head)
    query, key = (rotate(graph, apart[p], config.head, step.wave) for p in ("q_proj", "k_proj"))
    keys = grow_cache(graph, index, past, (key, apart["v_proj"]), config.shape)
    wide = repeat_heads(graph, keys[0], config.shape), repeat_heads(graph, keys[1], config.shape)
    mixed = attend(graph, query, wide, scale=config.head**-0.5, mask=step.mask)
    mixed = merge_heads(graph, mixed, config.heads * config.head)
    with graph.scope("o_proj"):
        return graph.linear(mixed, f"{name}.o_proj", bias=False)


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


def head(graph: Graph, config: LlamaConfig, value: str) -> None:
    """Normalise and score against the token embedding, or the head; logits come first."""
    with graph.scope("model"), graph.scope("norm"):
        value = graph.rms_norm(value, "model.norm", config.epsilon)
    with graph.scope("lm_head"):
        table = graph.weight(EMBEDDING if config.tied else "lm_head.weight")
        logits = graph.node("MatMul", value, graph.node("Transpose", table, perm=[1, 0]))
    graph.output(logits, "logits", ["batch_size", "sequence_length", config.vocab])
    graph.sort_outputs(first="logits")


def seeded_weights(config: LlamaConfig, seed: int) -> dict[str, FloatArray]:
    """Return random weights of a seed."""
    draw, hidden = Seeded(seed), config.hidden
    made = {EMBEDDING: draw.normal(config.vocab, hidden, scale=1.0)}
    if not config.tied:
        made |= draw.linear("lm_head", hidden, config.vocab, bias=False)
    outputs = {
        "q_proj": config.heads * config.head,
        "k_proj": config.kv_heads * config.head,
        "v_proj": config.kv_heads * config.head,
    }
    for index in range(config.layers):
        name = f"model.layers.{index}"
        for part, width in outputs.items():
            made |= draw.linear(f"{name}.self_attn.{part}", hidden, width, bias=config.biased)
        made |= draw.linear(f"{name}.self_attn.o_proj", outputs["q_proj"], hidden, bias=False)
        for part in ("gate_proj", "up_proj"):
            made |= draw.linear(f"{name}.mlp.{part}", hidden, config.inner, bias=False)
        made |= draw.linear(f"{name}.mlp.down_proj", config.inner, hidden, bias=False)
        for part in ("input_layernorm", "post_attention_layernorm"):
            made |= draw.norm(f"{name}.{part}", hidden, bias=False)
    return made | draw.norm("model.norm", hidden, bias=False)
