"""ConvNeXt (Liu et al. 2022), with the names of Hugging Face's `ConvNextForImageClassification`.

pixel_values [batch, 3, size, size] -> logits [batch, labels]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from models.recipe.encoder import feed_forward
from models.recipe.graph import FloatArray, Graph, Weights
from models.recipe.seeded import Seeded

_KERNEL, _PADDING = (7, 7), (3, 3)
_EPSILON = 1e-6
_LAST_EPSILON = 1e-12


@dataclass(frozen=True)
class ConvNextConfig:
    """Sizes of a classifier.

    Attributes:
        size: Side of the square image in pixels.
        patch: Side of a patch of the stem in pixels.
        widths: Channels of each stage; every stage but the first halves height and width.
        depths: Blocks of each stage.
        labels: Number of classes.
    """

    size: int
    patch: int
    widths: tuple[int, ...]
    depths: tuple[int, ...]
    labels: int


def classifier(config: ConvNextConfig, weights: Weights) -> Graph:
    """Build the classifier."""
    graph = Graph("main_graph", weights)
    shape = ["batch_size", 3, config.size, config.size]
    value = graph.input("pixel_values", TensorProto.FLOAT, shape)
    with graph.scope("convnext"):
        with graph.scope("embeddings"):
            patch, name = (config.patch, config.patch), "convnext.embeddings"
            value = graph.conv(value, f"{name}.patch_embeddings", patch, strides=patch)
            value = _channels_first_norm(graph, value, f"{name}.layernorm")
        for index, depth in enumerate(config.depths):
            with graph.scope(f"encoder/stages.{index}"):
                value = _stage(graph, value, index, (config.widths[index], depth))
        value = graph.node("ReduceMean", value, axes=[-2, -1], keepdims=0)
        value = graph.layer_norm(value, "convnext.layernorm", _LAST_EPSILON)
    with graph.scope("classifier"):
        value = graph.node(
            *("Gemm", value, graph.weight("classifier.weight"), graph.weight("classifier.bias")),
            transB=1,
        )
    graph.output(value, "logits", ["batch_size", config.labels])
    return graph


def _stage(graph: Graph, value: str, index: int, size: tuple[int, int]) -> str:
    """Halve height and width, but in the first stage, then run the blocks of (width, depth)."""
    name = f"convnext.encoder.stages.{index}"
    if index:
        with graph.scope("downsampling_layer"):
            value = _channels_first_norm(graph, value, f"{name}.downsampling_layer.0")
            value = graph.conv(value, f"{name}.downsampling_layer.1", (2, 2), strides=(2, 2))
    width, depth = size
    for block in range(depth):
        with graph.scope(f"layers.{block}"):
            value = _block(graph, value, f"{name}.layers.{block}", width)
    return value


def _block(graph: Graph, value: str, name: str, width: int) -> str:
    """Mix pixels channel by channel, then channels pixel by pixel; scale, and add."""
    with graph.scope("dwconv"):
        branch = graph.conv(value, f"{name}.dwconv", _KERNEL, padding=_PADDING, groups=width)
    branch = graph.node("Transpose", branch, perm=[0, 2, 3, 1])
    branch = graph.layer_norm(branch, f"{name}.layernorm", _EPSILON)
    branch = feed_forward(graph, branch, name, ("pwconv1", "pwconv2"), Graph.gelu)
    branch = graph.node("Mul", graph.weight(f"{name}.layer_scale_parameter"), branch)
    branch = graph.node("Transpose", branch, perm=[0, 3, 1, 2])
    return graph.node("Add", value, branch)


def _channels_first_norm(graph: Graph, value: str, name: str) -> str:
    """Normalise the channels of [batch, channels, h, w], with the channels moved behind."""
    value = graph.node("Transpose", value, perm=[0, 2, 3, 1])
    value = graph.layer_norm(value, name, _EPSILON)
    return graph.node("Transpose", value, perm=[0, 3, 1, 2])


def seeded_weights(config: ConvNextConfig, seed: int) -> dict[str, FloatArray]:
    """Return random weights of a seed."""
    draw, first, last = Seeded(seed), config.widths[0], config.widths[-1]
    made = draw.conv("convnext.embeddings.patch_embeddings", 3, first, (config.patch, config.patch))
    made |= draw.norm("convnext.embeddings.layernorm", first)
    before = first
    for index, (width, depth) in enumerate(zip(config.widths, config.depths, strict=True)):
        name = f"convnext.encoder.stages.{index}"
        if index:
            made |= draw.norm(f"{name}.downsampling_layer.0", before)
            made |= draw.conv(f"{name}.downsampling_layer.1", before, width, (2, 2))
        for block in range(depth):
            layer = f"{name}.layers.{block}"
            made |= draw.conv(f"{layer}.dwconv", width, width, _KERNEL, groups=width)
            made |= draw.norm(f"{layer}.layernorm", width)
            made |= draw.linear(f"{layer}.pwconv1", width, 4 * width)
            made |= draw.linear(f"{layer}.pwconv2", 4 * width, width)
            scale = np.abs(draw.normal(width, scale=0.5))
            made[f"{layer}.layer_scale_parameter"] = np.float32(0.1) + scale
        before = width
    made |= draw.norm("convnext.layernorm", last)
    return made | draw.linear("classifier", last, config.labels)
