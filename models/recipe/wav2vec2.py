"""wav2vec 2.0 (Baevski et al. 2020), with the names of Hugging Face's `Wav2Vec2ForCTC`.

input_values [batch, samples] -> logits [batch, frames, vocab], class 0 the blank of CTC

HuBERT (Hsu et al. 2021) has the same layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from models.recipe.encoder import (
    EncoderConfig,
    attention,
    attention_weights,
    feed_forward,
)
from models.recipe.graph import FloatArray, Graph, Weights
from models.recipe.seeded import Seeded

_DENSE = ("intermediate_dense", "output_dense")
_EPSILON = 1e-5


@dataclass(frozen=True)
class Wav2Vec2Config:
    """Sizes of a recogniser.

    Attributes:
        channels: Of every convolution of the front end.
        kernels: Samples that each of them sees.
        strides: Of each of them.
        encoder: The transformer.
        position_kernel: Frames that the positional convolution sees, even.
        position_groups: Of the positional convolution.
        vocab: Number of characters, the blank among them.
    """

    channels: int
    kernels: tuple[int, ...]
    strides: tuple[int, ...]
    encoder: EncoderConfig
    position_kernel: int
    position_groups: int
    vocab: int


def recogniser(config: Wav2Vec2Config, weights: Weights) -> Graph:
    """Build the recogniser."""
    graph = Graph("main_graph", weights)
    samples = graph.input("input_values", TensorProto.FLOAT, ["batch_size", "sequence_length"])
    with graph.scope("wav2vec2"):
        with graph.scope("feature_extractor"):
            value = _front_end(graph, config, samples)
        with graph.scope("feature_projection"):
            value = graph.node("Transpose", value, perm=[0, 2, 1])
            name = "wav2vec2.feature_projection"
            value = graph.layer_norm(value, f"{name}.layer_norm", _EPSILON)
            value = graph.linear(value, f"{name}.projection")
        with graph.scope("encoder"):
            with graph.scope("pos_conv_embed"):
                places = _positions(graph, config, value)
            value = graph.node("Add", value, places)
            value = graph.layer_norm(value, "wav2vec2.encoder.layer_norm", _EPSILON)
            for index in range(config.encoder.layers):
                with graph.scope(f"layers.{index}"):
                    value = _layer(graph, config, value, f"wav2vec2.encoder.layers.{index}")
    with graph.scope("lm_head"):
        value = graph.linear(value, "lm_head")
    graph.output(value, "logits", ["batch_size", "frames", config.vocab])
    return graph


def _front_end(graph: Graph, config: Wav2Vec2Config, samples: str) -> str:
    """Turn samples into frames by strided convolutions: [batch, channels, frames].

    Every channel of the first one is normalised over time: a GroupNorm of one channel a group.
    """
    value = graph.unsqueeze(samples, 1)
    for index, (kernel, stride) in enumerate(zip(config.kernels, config.strides, strict=True)):
        name = f"wav2vec2.feature_extractor.conv_layers.{index}"
        with graph.scope(f"conv_layers.{index}"):
            value = graph.conv(value, f"{name}.conv", (kernel,), strides=(stride,), bias=False)
            if index == 0:
                value = _group_norm(graph, value, f"{name}.layer_norm", config.channels)
            value = graph.gelu(value)
    return value


def _group_norm(graph: Graph, value: str, name: str, groups: int) -> str:
    """Normalise groups of channels over time as the exporter spells it: by instance, then scale."""
    rows = graph.node("Reshape", value, graph.constant([0, groups, -1]))
    ones, zeros = (graph.constant(np.full(groups, n, np.float32)) for n in (1, 0))
    normed = graph.node("InstanceNormalization", rows, ones, zeros, epsilon=_EPSILON)
    normed = graph.node("Reshape", normed, graph.node("Shape", value))
    weight, bias = (graph.unsqueeze(graph.weight(f"{name}.{p}"), 1) for p in ("weight", "bias"))
    return graph.node("Add", graph.node("Mul", normed, weight), bias)


def _positions(graph: Graph, config: Wav2Vec2Config, value: str) -> str:
    """Look at the frames around each one: a grouped convolution whose weight is normalised."""
    name = "wav2vec2.encoder.pos_conv_embed.conv"
    length, direction = (
        graph.weight(f"{name}.parametrizations.weight.original{i}") for i in (0, 1)
    )
    norm = graph.node("ReduceL2", direction, axes=[0, 1], keepdims=1)
    weight = graph.node("Mul", graph.node("Div", direction, norm), length)
    turned = graph.node("Transpose", value, perm=[0, 2, 1])
    kernel = config.position_kernel
    seen = graph.node(
        *("Conv", turned, weight, graph.weight(f"{name}.bias")),
        dilations=[1],
        group=config.position_groups,
        kernel_shape=[kernel],
        pads=[kernel // 2, kernel // 2],
        strides=[1],
    )
    seen = graph.gelu(graph.slice(seen, 0, -1, 2))
    return graph.node("Transpose", seen, perm=[0, 2, 1])


def _layer(graph: Graph, config: Wav2Vec2Config, value: str, name: str) -> str:
    """One block: each branch is added, and the sum normalised."""
    with graph.scope("attention"):
        branch = attention(graph, config.encoder, value, f"{name}.attention")
    value = graph.node("Add", value, branch)
    value = graph.layer_norm(value, f"{name}.layer_norm", _EPSILON)
    with graph.scope("feed_forward"):
        branch = feed_forward(graph, value, f"{name}.feed_forward", _DENSE, Graph.gelu)
    value = graph.node("Add", value, branch)
    return graph.layer_norm(value, f"{name}.final_layer_norm", _EPSILON)


def seeded_weights(config: Wav2Vec2Config, seed: int) -> dict[str, FloatArray]:
    """Return random weights of a seed."""
    draw, sizes, hidden = Seeded(seed), config.encoder, config.encoder.hidden
    made: dict[str, FloatArray] = {}
    for index, kernel in enumerate(config.kernels):
        name = f"wav2vec2.feature_extractor.conv_layers.{index}"
        inputs = config.channels if index else 1
        made |= draw.conv(f"{name}.conv", inputs, config.channels, (kernel,), bias=False)
        if index == 0:
            made |= draw.norm(f"{name}.layer_norm", config.channels)
    made |= draw.norm("wav2vec2.feature_projection.layer_norm", config.channels)
    made |= draw.linear("wav2vec2.feature_projection.projection", config.channels, hidden)
    name, groups = "wav2vec2.encoder.pos_conv_embed.conv", config.position_groups
    kernel = (config.position_kernel,)
    drawn = draw.conv(name, hidden, hidden, kernel, groups=groups)
    weight = drawn.pop(f"{name}.weight")
    norm = np.sqrt(np.square(weight).sum((0, 1), keepdims=True))
    made |= drawn
    made[f"{name}.parametrizations.weight.original0"] = norm
    made[f"{name}.parametrizations.weight.original1"] = weight
    made |= draw.norm("wav2vec2.encoder.layer_norm", hidden)
    for index in range(sizes.layers):
        name = f"wav2vec2.encoder.layers.{index}"
        made |= attention_weights(draw, sizes, f"{name}.attention")
        made |= draw.linear(f"{name}.feed_forward.{_DENSE[0]}", hidden, sizes.inner)
        made |= draw.linear(f"{name}.feed_forward.{_DENSE[1]}", sizes.inner, hidden)
        made |= draw.norm(f"{name}.layer_norm", hidden)
        made |= draw.norm(f"{name}.final_layer_norm", hidden)
    return made | draw.linear("lm_head", hidden, config.vocab)
