"""DINOv2 vision transformers (Oquab et al. 2023), with the names of Hugging Face's `Dinov2Model`.

pixel_values [batch, 3, size, size] -> last_hidden_state [batch, tokens, hidden]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from models.recipe.encoder import (
    AttentionNames,
    EncoderConfig,
    attention,
    attention_weights,
    feed_forward,
)
from models.recipe.graph import FloatArray, Graph, Weights
from models.recipe.patches import patch_tokens, repeated
from models.recipe.seeded import Seeded

_NAMES = AttentionNames(("attention.query", "attention.key", "attention.value"), "output.dense")
_TO_END = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Dinov2Config:
    """Sizes of an encoder.

    Attributes:
        size: Side of the square image in pixels.
        patch: Side of a patch in pixels.
        hidden: Width of a token.
        heads: Number of attention heads.
        layers: Number of blocks.
        inner: Width of the MLP.
        epsilon: Of every LayerNorm.
        registers: Tokens without a place behind the class token (Darcet et al. 2024).
        stored_grid: Side of the grid of the stored positions; 0: that of the image.
    """

    size: int = 224
    patch: int = 14
    hidden: int = 384
    heads: int = 6
    layers: int = 12
    inner: int = 1536
    epsilon: float = 1e-6
    registers: int = 0
    stored_grid: int = 0

    @property
    def grid(self) -> int:
        """Patches along a side."""
        return self.size // self.patch

    @property
    def tokens(self) -> int:
        """Class token, registers and patches."""
        return 1 + self.registers + self.grid * self.grid

    @property
    def blocks(self) -> EncoderConfig:
        """Sizes of the blocks."""
        return EncoderConfig(self.hidden, self.heads, self.layers, self.inner, self.epsilon)


def vision_encoder(config: Dinov2Config, weights: Weights) -> Graph:
    """Build the encoder."""
    graph = Graph("main_graph", weights)
    pixels = graph.input(
        "pixel_values", TensorProto.FLOAT, ["batch_size", 3, config.size, config.size]
    )
    with graph.scope("embeddings"):
        value = _embed(graph, config, pixels)
    for index in range(config.layers):
        with graph.scope("encoder"), graph.scope(f"layer.{index}"):
            value = _layer(graph, config, value, f"encoder.layer.{index}")
    with graph.scope("layernorm"):
        value = graph.layer_norm(value, "layernorm", config.epsilon)
    graph.output(value, "last_hidden_state", ["batch_size", config.tokens, config.hidden])
    return graph


def _embed(graph: Graph, config: Dinov2Config, pixels: str) -> str:
    """Cut into patches, put the class token in front, add positions, put registers between."""
    name, hidden = "embeddings.patch_embeddings.projection", config.hidden
    with graph.scope("patch_embeddings"):
        patches = patch_tokens(graph, pixels, name, config.patch)
    token = repeated(graph, graph.weight("embeddings.cls_token"), pixels, 1, hidden)
    value = graph.node("Concat", token, patches, axis=1)
    value = graph.node("Add", value, _positions(graph, config))
    if not config.registers:
        return value
    registers = graph.weight("embeddings.register_tokens")
    registers = repeated(graph, registers, pixels, config.registers, hidden)
    first, rest = graph.slice(value, 0, 1, 1), graph.slice(value, 1, _TO_END, 1)
    return graph.node("Concat", first, registers, rest, axis=1)


def _positions(graph: Graph, config: Dinov2Config) -> str:
    """Return positions of the image's grid, read off the stored grid where that is another."""
    stored = graph.weight("embeddings.position_embeddings")
    if config.stored_grid in (0, config.grid):
        return stored
    first, rest = graph.slice(stored, 0, 1, 1), graph.slice(stored, 1, _TO_END, 1)
    side = config.stored_grid
    image = graph.node("Reshape", rest, graph.constant([1, side, side, config.hidden]))
    image = graph.node("Transpose", image, perm=[0, 3, 1, 2])
    image = graph.node(
        *("Resize", image, "", "", graph.constant([1, config.hidden, config.grid, config.grid])),
        coordinate_transformation_mode="half_pixel",
        cubic_coeff_a=-0.75,
        mode="cubic",
    )
    image = graph.node("Transpose", image, perm=[0, 2, 3, 1])
    rest = graph.node("Reshape", image, graph.constant([1, -1, config.hidden]))
    return graph.node("Concat", first, rest, axis=1)


def _layer(graph: Graph, config: Dinov2Config, value: str, name: str) -> str:
    """One block: each branch is normalised, applied, scaled per channel, and added."""
    with graph.scope("norm1"):
        normed = graph.layer_norm(value, f"{name}.norm1", config.epsilon)
    with graph.scope("attention"):
        branch = attention(graph, config.blocks, normed, f"{name}.attention", names=_NAMES)
    with graph.scope("layer_scale1"):
        branch = graph.node("Mul", branch, graph.weight(f"{name}.layer_scale1.lambda1"))
    value = graph.node("Add", branch, value)
    with graph.scope("norm2"):
        normed = graph.layer_norm(value, f"{name}.norm2", config.epsilon)
    with graph.scope("mlp"):
        branch = feed_forward(graph, normed, f"{name}.mlp", ("fc1", "fc2"), Graph.gelu)
    with graph.scope("layer_scale2"):
        branch = graph.node("Mul", branch, graph.weight(f"{name}.layer_scale2.lambda1"))
    return graph.node("Add", branch, value)


def seeded_weights(config: Dinov2Config, seed: int) -> dict[str, FloatArray]:
    """Return random weights of a seed, scaled so that activations stay near unit size."""
    draw, hidden = Seeded(seed), config.hidden
    places = 1 + (config.stored_grid or config.grid) ** 2
    made = {
        "embeddings.cls_token": draw.normal(1, 1, hidden, scale=0.5),
        "embeddings.position_embeddings": draw.normal(1, places, hidden, scale=0.5),
    }
    if config.registers:
        made["embeddings.register_tokens"] = draw.normal(1, config.registers, hidden, scale=0.5)
    patch = (config.patch, config.patch)
    made |= draw.conv("embeddings.patch_embeddings.projection", 3, hidden, patch)
    for index in range(config.layers):
        name = f"encoder.layer.{index}"
        made |= attention_weights(draw, config.blocks, f"{name}.attention", _NAMES)
        made |= draw.linear(f"{name}.mlp.fc1", hidden, config.inner)
        made |= draw.linear(f"{name}.mlp.fc2", config.inner, hidden)
        for part in ("norm1", "norm2"):
            made |= draw.norm(f"{name}.{part}", hidden)
        for part in ("layer_scale1", "layer_scale2"):
            made[f"{name}.{part}.lambda1"] = np.float32(0.1) + np.abs(
                draw.normal(hidden, scale=0.5)
            )
    return made | draw.norm("layernorm", hidden)
