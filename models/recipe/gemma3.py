"""Gemma 3 language models (2025), with the names of Hugging Face's `Gemma3ForCausalLM`.

Inputs and outputs are those of `llama.py`. Most layers see a window of the last tokens, some see
all, with rotary bases of their own; query and key are normalised head by head; each branch is
normalised before and behind; norms scale by one plus their weight; embeddings are scaled.
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
from models.recipe.drawn import DrawnGraph
from models.recipe.rotary import Waves, rotate, waves

_STEPS = ("batch_size", "sequence_length")


@dataclass(frozen=True)
class Gemma3Config:
    """Sizes of a decoder.

    Attributes:
        vocab: Number of tokens.
        hidden: Width of the residual stream.
        inner: Width of the gated MLP.
        layers: Number of blocks.
        shape: How attention is divided.
        window: Tokens that a layer with a window sees.
        period: Each layer of this number sees all tokens.
        theta: Base of the rotary frequencies where all are seen.
        local_theta: Where a window is.
        epsilon: Of every RMSNorm.
    """

    vocab: int
    hidden: int
    inner: int
    layers: int
    shape: Heads
    window: int
    period: int
    theta: float = 1_000_000.0
    local_theta: float = 10_000.0
    epsilon: float = 1e-6


@dataclass(frozen=True)
class _Step:
    """What layers of one kind share: values by name."""

    wave: Waves
    mask: str


def decoder(config: Gemma3Config, seed: int) -> DrawnGraph:
    """Build the decoder with weights of a seed."""
    graph = DrawnGraph(seed)
    ids = graph.input("input_ids", TensorProto.INT64, _STEPS)
    total = ["batch_size", "total_sequence_length"]
    attention = graph.input("attention_mask", TensorProto.INT64, total)
    positions = graph.input("position_ids", TensorProto.INT64, _STEPS)
    cached = take_cache(graph, config.layers, config.shape)
    with graph.scope("model"):
        value = graph.embed(ids, "model.embed_tokens", config.vocab, config.hidden)
        value = graph.node("Mul", value, graph.constant(config.hidden**0.5))
        steps = [
            _step(graph, config, value, attention, positions, local=local)
            for local in (False, True)
        ]
        for index, past in enumerate(cached):
            step = steps[0 if (index + 1) % config.period == 0 else 1]
            with graph.scope(f"layers.{index}"):
                value = _layer(graph, config, value, index, past, step)
        value = _norm(graph, config, value, "model.norm")
    with graph.scope("lm_head"):
        table = graph.weight("model.embed_tokens.weight")
        logits = graph.node("MatMul", value, graph.node("Transpose", table, perm=[1, 0]))
    graph.output(logits, "logits", [*_STEPS, config.vocab])
    graph.sort_outputs(first="logits")
    return graph


def _step(
    graph: DrawnGraph,
    config: Gemma3Config,
    value: str,
    attention: str,
    positions: str,
    *,
    local: bool,
) -> _Step:
    """Compute mask and rotary waves of the layers of one kind."""
    mask = causal_mask(graph, value, attention, window=config.window if local else None)
    with graph.scope("rotary_emb_local" if local else "rotary_emb"):
        theta = config.local_theta if local else config.theta
        return _Step(waves(graph, positions, config.shape.head, theta), mask)


def _norm(graph: DrawnGraph, config: Gemma3Config, value: str, name: str) -> str:
    return graph.normalise_rms(value, name, config.hidden, config.epsilon, offset=True)


def _layer(
    graph: DrawnGraph, config: Gemma3Config, value: str, index: int, past: Pair, step: _Step
) -> str:
    """One block: attention and gated MLP, each between two norms, each added."""
    name = f"model.layers.{index}"
    branch = _norm(graph, config, value, f"{name}.input_layernorm")
    with graph.scope("self_attn"):
        branch = _attention(graph, config, branch, index, past, step)
    branch = _norm(graph, config, branch, f"{name}.post_attention_layernorm")
    value = graph.node("Add", value, branch)
    branch = _norm(graph, config, value, f"{name}.pre_feedforward_layernorm")
    with graph.scope("mlp"):
        branch = _gated_mlp(graph, config, branch, f"{name}.mlp")
    branch = _norm(graph, config, branch, f"{name}.post_feedforward_layernorm")
    return graph.node("Add", value, branch)


def _attention(
    graph: DrawnGraph, config: Gemma3Config, value: str, index: int, past: Pair, step: _Step
) -> str:
    """Grouped causal attention over the cache and the new tokens."""
    name, shape = f"model.layers.{index}.self_attn", config.shape
    query, key = (
        _turned(graph, config, value, f"{name}.{side}", heads, step)
        for side, heads in (("q", shape.heads), ("k", shape.kv_heads))
    )
    width = shape.kv_heads * shape.head
    flat = graph.dense(value, f"{name}.v_proj", config.hidden, width, bias=False)
    new = (key, split_heads(graph, flat, shape.head))
    key, values = grow_cache(graph, index, past, new, shape)
    wide = repeat_heads(graph, key, shape), repeat_heads(graph, values, shape)
    mixed = attend(graph, query, wide, scale=shape.head**-0.5, mask=step.mask)
    mixed = merge_heads(graph, mixed, shape.heads * shape.head)
    return graph.dense(mixed, f"{name}.o_proj", shape.heads * shape.head, config.hidden, bias=False)


def _turned(
    graph: DrawnGraph, config: Gemma3Config, value: str, name: str, heads: int, step: _Step
) -> str:
    """Project to heads, normalise each, and rotate it."""
    head = config.shape.head
    flat = graph.dense(value, f"{name}_proj", config.hidden, heads * head, bias=False)
    apart = split_heads(graph, flat, head)
    normed = graph.normalise_rms(apart, f"{name}_norm", head, config.epsilon, offset=True)
    return rotate(graph, normed, head, step.wave)


def _gated_mlp(graph: DrawnGraph, config: Gemma3Config, value: str, name: str) -> str:
    """Compute `down(gelu_tanh(gate(x)) * up(x))` (Shazeer 2020)."""
    hidden, inner = config.hidden, config.inner
    gate = graph.dense(value, f"{name}.gate_proj", hidden, inner, bias=False)
    with graph.scope("act_fn"):
        gate = graph.gelu_tanh(gate)
    up = graph.dense(value, f"{name}.up_proj", hidden, inner, bias=False)
    product = graph.node("Mul", gate, up)
    return graph.dense(product, f"{name}.down_proj", inner, hidden, bias=False)
