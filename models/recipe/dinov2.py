"""DINOv2 vision transformers (Oquab et al. 2023), with the names of Hugging Face's `Dinov2Model`.

pixel_values [batch, 3, size, size] -> last_hidden_state [batch, 1 + grid * grid, hidden]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from models.recipe.graph import FloatArray, Graph, Weights
from models.recipe.seeded import Seeded


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
    """

    size: int = 224
    patch: int = 14
    hidden: int = 384
    heads: int = 6
    layers: int = 12
    inner: int = 1536
    epsilon: float = 1e-6

    @property
    def grid(self) -> int:
        """Patches along a side."""
        return self.size // self.patch

    @property
    def tokens(self) -> int:
        """Class token and patches."""
        return 1 + self.grid * self.grid


def vision_encoder(config: Dinov2Config, weights: Weights) -> Graph:
    """Build the encoder; positions must already have the image's own grid."""
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
    """Cut into patches, put the class token in front, add positions."""
    name = "embeddings.patch_embeddings.projection"
    with graph.scope("patch_embeddings"):
        with graph.scope("projection"):
            patches = graph.node(
                "Conv",
                pixels,
                graph.weight(f"{name}.weight"),
                graph.weight(f"{name}.bias"),
                dilations=[1, 1],
                group=1,
                kernel_shape=[config.patch, config.patch],
                pads=[0, 0, 0, 0],
                strides=[config.patch, config.patch],
            )
        # flatten(2) as the exporter writes it: the first two extents, then -1
        leading = graph.slice(graph.node("Shape", patches), 0, 2, 0)
        flat_shape = graph.node("Concat", leading, graph.constant([-1]), axis=0)
        flat = graph.node("Reshape", patches, flat_shape)
        patches = graph.node("Transpose", flat, perm=[0, 2, 1])
    shape = graph.shape([graph.size(pixels, 0), 1, config.hidden])
    token = graph.node("Expand", graph.weight("embeddings.cls_token"), shape)
    sequence = graph.node("Concat", token, patches, axis=1)
    return graph.node("Add", sequence, graph.weight("embeddings.position_embeddings"))


def _layer(graph: Graph, config: Dinov2Config, value: str, name: str) -> str:
    """One block: each branch is normalised, applied, scaled per channel, and added."""
    with graph.scope("norm1"):
        normed = graph.layer_norm(value, f"{name}.norm1", config.epsilon)
    branch = _attention(graph, config, normed, f"{name}.attention")
    with graph.scope("layer_scale1"):
        branch = graph.node("Mul", branch, graph.weight(f"{name}.layer_scale1.lambda1"))
    value = graph.node("Add", branch, value)
    with graph.scope("norm2"):
        normed = graph.layer_norm(value, f"{name}.norm2", config.epsilon)
    with graph.scope("mlp"):
        with graph.scope("fc1"):
            branch = graph.linear(normed, f"{name}.mlp.fc1")
        with graph.scope("activation"):
            branch = graph.gelu(branch)
        with graph.scope("fc2"):
            branch = graph.linear(branch, f"{name}.mlp.fc2")
    with graph.scope("layer_scale2"):
        branch = graph.node("Mul", branch, graph.weight(f"{name}.layer_scale2.lambda1"))
    return graph.node("Add", branch, value)


def _attention(graph: Graph, config: Dinov2Config, value: str, name: str) -> str:
    """Bidirectional attention over all tokens: [batch, tokens, hidden] -> same shape."""
    head = config.hidden // config.heads
    with graph.scope("attention"), graph.scope("attention"):
        heads: dict[str, str] = {}
        for part in ("query", "key", "value"):
            with graph.scope(part):
                flat = graph.linear(value, f"{name}.attention.{part}")
            batch, tokens = graph.size(flat, 0), graph.size(flat, 1)
            split = graph.shape([batch, tokens, config.heads, head])
            heads[part] = graph.node("Reshape", flat, split)
        query = graph.node("Transpose", heads["query"], perm=[0, 2, 1, 3])
        keys = graph.node("Transpose", heads["key"], perm=[0, 2, 3, 1])
        values = graph.node("Transpose", heads["value"], perm=[0, 2, 1, 3])
        scores = graph.node("MatMul", query, keys)
        scores = graph.node("Mul", scores, graph.constant(head**-0.5))
        mixed = graph.node("MatMul", graph.node("Softmax", scores, axis=-1), values)
        mixed = graph.node("Transpose", mixed, perm=[0, 2, 1, 3])
        batch, tokens = graph.size(mixed, 0), graph.size(mixed, 1)
        mixed = graph.node("Reshape", mixed, graph.shape([batch, tokens, config.hidden]))
    with graph.scope("attention"), graph.scope("output"), graph.scope("dense"):
        return graph.linear(mixed, f"{name}.output.dense")


def seeded_weights(config: Dinov2Config, seed: int) -> dict[str, FloatArray]:
    """Return random weights of a seed, scaled so that activations stay near unit size."""
    draw, hidden = Seeded(seed), config.hidden
    made = {
        "embeddings.cls_token": draw.normal(1, 1, hidden, scale=0.5),
        "embeddings.position_embeddings": draw.normal(1, config.tokens, hidden, scale=0.5),
    }
    projection = "embeddings.patch_embeddings.projection"
    fan_in = 3 * config.patch * config.patch
    made[f"{projection}.weight"] = draw.normal(
        hidden, 3, config.patch, config.patch, scale=fan_in**-0.5
    )
    made[f"{projection}.bias"] = draw.normal(hidden, scale=0.1)
    for index in range(config.layers):
        name = f"encoder.layer.{index}"
        for part in ("query", "key", "value"):
            made |= draw.linear(f"{name}.attention.attention.{part}", hidden, hidden)
        made |= draw.linear(f"{name}.attention.output.dense", hidden, hidden)
        made |= draw.linear(f"{name}.mlp.fc1", hidden, config.inner)
        made |= draw.linear(f"{name}.mlp.fc2", config.inner, hidden)
        for part in ("norm1", "norm2"):
            made |= draw.norm(f"{name}.{part}", hidden)
        for part in ("layer_scale1", "layer_scale2"):
            made[f"{name}.{part}.lambda1"] = np.float32(0.1) + np.abs(
                draw.normal(hidden, scale=0.5)
            )
    return made | draw.norm("layernorm", hidden)
