"""Blocks of bidirectional transformers (Vaswani et al. 2017), as vision and speech encoders share.

Names are those of Hugging Face's `CLIPEncoder` where the caller gives no others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from models.recipe.attention import attend, merge_heads, split_heads
from models.recipe.graph import FloatArray, Graph
from models.recipe.seeded import Seeded

Activation = Callable[[Graph, str], str]


@dataclass(frozen=True)
class EncoderConfig:
    """Sizes of a stack of blocks.

    Attributes:
        hidden: Width of a token.
        heads: Number of attention heads; divides `hidden`.
        layers: Number of blocks.
        inner: Width of the feed-forward part.
        epsilon: Of every LayerNorm.
    """

    hidden: int
    heads: int
    layers: int
    inner: int
    epsilon: float = 1e-5


@dataclass(frozen=True)
class AttentionNames:
    """What the four linear layers of an attention are called below its own name."""

    inputs: tuple[str, str, str] = ("q_proj", "k_proj", "v_proj")
    output: str = "out_proj"


CLIP_NAMES = AttentionNames()


def encoder(
    graph: Graph,
    config: EncoderConfig,
    value: str,
    name: str,
    activation: Activation,
    mask: str | None = None,
) -> str:
    """Run all blocks: each branch is normalised, applied and added; [batch, tokens, hidden]."""
    for index in range(config.layers):
        layer = f"{name}.layers.{index}"
        with graph.scope(layer.replace(".layers", "/layers")):
            with graph.scope("layer_norm1"):
                normed = graph.layer_norm(value, f"{layer}.layer_norm1", config.epsilon)
            with graph.scope("self_attn"):
                branch = attention(graph, config, normed, f"{layer}.self_attn", mask=mask)
            value = graph.node("Add", value, branch)
            with graph.scope("layer_norm2"):
                normed = graph.layer_norm(value, f"{layer}.layer_norm2", config.epsilon)
            with graph.scope("mlp"):
                branch = feed_forward(graph, normed, f"{layer}.mlp", ("fc1", "fc2"), activation)
            value = graph.node("Add", value, branch)
    return value


def attention(
    graph: Graph,
    config: EncoderConfig,
    value: str,
    name: str,
    *,
    names: AttentionNames = CLIP_NAMES,
    mask: str | None = None,
) -> str:
    """Attend over all tokens, [batch, tokens, hidden] -> same shape; a mask is added to scores."""
    head, apart = config.hidden // config.heads, list[str]()
    for part in names.inputs:
        with graph.scope(part.replace(".", "/")):
            flat = graph.linear(value, f"{name}.{part}")
        apart.append(split_heads(graph, flat, head))
    mixed = attend(graph, apart[0], (apart[1], apart[2]), scale=head**-0.5, mask=mask)
    mixed = merge_heads(graph, mixed, config.hidden)
    with graph.scope(names.output.replace(".", "/")):
        return graph.linear(mixed, f"{name}.{names.output}")


def feed_forward(
    graph: Graph, value: str, name: str, parts: tuple[str, str], activation: Activation
) -> str:
    """Apply two linear layers with an activation between them."""
    with graph.scope(parts[0]):
        value = graph.linear(value, f"{name}.{parts[0]}")
    value = activation(graph, value)
    with graph.scope(parts[1]):
        return graph.linear(value, f"{name}.{parts[1]}")


def encoder_weights(draw: Seeded, config: EncoderConfig, name: str) -> dict[str, FloatArray]:
    """Draw the weights of all blocks."""
    made: dict[str, FloatArray] = {}
    for index in range(config.layers):
        layer = f"{name}.layers.{index}"
        made |= attention_weights(draw, config, f"{layer}.self_attn")
        made |= draw.linear(f"{layer}.mlp.fc1", config.hidden, config.inner)
        made |= draw.linear(f"{layer}.mlp.fc2", config.inner, config.hidden)
        for norm in ("layer_norm1", "layer_norm2"):
            made |= draw.norm(f"{layer}.{norm}", config.hidden)
    return made


def attention_weights(
    draw: Seeded, config: EncoderConfig, name: str, names: AttentionNames = CLIP_NAMES
) -> dict[str, FloatArray]:
    """Draw the four linear layers of an attention."""
    made: dict[str, FloatArray] = {}
    for part in (*names.inputs, names.output):
        made |= draw.linear(f"{name}.{part}", config.hidden, config.hidden)
    return made
