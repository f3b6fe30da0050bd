"""A Llama that looks at an image as Flamingo does (Alayrac et al. 2022), in OpenFlamingo's names.

Inputs and outputs are those of `llama.py`, and image_features [batch, seen, width]. In front of
each block stand attention to the image and an MLP, each scaled by the tanh of a learned gate.
"""

from __future__ import annotations

from dataclasses import dataclass

from onnx import TensorProto

from models.recipe import llama
from models.recipe.attention import attend, merge_heads, split_heads, take_cache
from models.recipe.drawn import DrawnGraph
from models.recipe.llama import LlamaConfig

_STEPS = ("batch_size", "sequence_length")
_EPSILON = 1e-5


@dataclass(frozen=True)
class FlamingoConfig:
    """Sizes of a decoder.

    Attributes:
        text: The language model.
        seen: Vectors that stand for the image.
        width: Of each of them.
        heads: Heads that look at the image.
        head: Width of such a head.
    """

    text: LlamaConfig
    seen: int
    width: int
    heads: int
    head: int


def decoder(config: FlamingoConfig, seed: int) -> DrawnGraph:
    """Build the decoder with weights of a seed."""
    text = config.text
    graph = DrawnGraph(seed, llama.seeded_weights(text, seed))
    ids = graph.input("input_ids", TensorProto.INT64, _STEPS)
    total = ["batch_size", "total_sequence_length"]
    attention = graph.input("attention_mask", TensorProto.INT64, total)
    positions = graph.input("position_ids", TensorProto.INT64, _STEPS)
    image = graph.input(
        "image_features", TensorProto.FLOAT, ["batch_size", config.seen, config.width]
    )
    cached = take_cache(graph, text.layers, text.shape)
    with graph.scope("model"):
        value = llama.embed(graph, ids)
        step = llama.step_of(graph, text, value, attention, positions)
        for index, past in enumerate(cached):
            with graph.scope(f"layers.{index}"):
                name = f"model.layers.{index}.gated_cross_attn_layer"
                with graph.scope("gated_cross_attn_layer"):
                    value = _look(graph, config, value, image, name)
                value = llama.layer(graph, text, value, index, past, step)
    llama.head(graph, text, value)
    return graph


def _look(graph: DrawnGraph, config: FlamingoConfig, value: str, image: str, name: str) -> str:
    """Gated attention to the image, and a gated MLP."""
    hidden = config.text.hidden
    with graph.scope("attn"):
        branch = _attention(graph, config, value, image, f"{name}.attn")
    value = _gated(graph, value, branch, f"{name}.attn_gate")
    with graph.scope("ff"):
        inner = graph.normalise(value, f"{name}.ff.0", hidden, _EPSILON)
        inner = graph.dense(inner, f"{name}.ff.1", hidden, 4 * hidden, bias=False)
        with graph.scope("2"):
            inner = graph.gelu(inner)
        branch = graph.dense(inner, f"{name}.ff.3", 4 * hidden, hidden, bias=False)
    return _gated(graph, value, branch, f"{name}.ff_gate")


def _gated(graph: DrawnGraph, value: str, branch: str, name: str) -> str:
    """Add a branch, scaled by the tanh of its gate [1]."""
    gate = graph.node("Tanh", graph.draw(name, 1, scale=0.5))
    return graph.node("Add", graph.node("Mul", branch, gate), value)


def _attention(graph: DrawnGraph, config: FlamingoConfig, value: str, image: str, name: str) -> str:
    """Attention of text to the image; keys and values are one product."""
    hidden, width = config.text.hidden, config.heads * config.head
    normed = graph.normalise(value, f"{name}.norm", hidden, _EPSILON)
    query = graph.dense(normed, f"{name}.to_q", hidden, width, bias=False)
    both = graph.dense(image, f"{name}.to_kv", config.width, 2 * width, bias=False)
    key, values = graph.split(both, [width, width], 2)
    query, key, values = (split_heads(graph, v, config.head) for v in (query, key, values))
    query = graph.node("Mul", query, graph.constant(config.head**-0.5))
    mixed = merge_heads(graph, attend(graph, query, (key, values), scale=None), width)
    return graph.dense(mixed, f"{name}.to_out", width, hidden, bias=False)
