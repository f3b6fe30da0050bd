"""SVTR text recognisers (Du et al. 2022), with the names of PaddleOCR's `SVTRNet` and `CTCHead`.

x [batch, 3, height, width] -> softmax_0.tmp_0 [batch, width / 4, classes], class 0 the blank of CTC

Every stage mixes tokens within a window (local) or all of them (global); between stages the height
is halved, and at the end what is left of it is averaged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from models.recipe.attention import attend, merge_heads
from models.recipe.encoder import EncoderConfig, feed_forward
from models.recipe.graph import FloatArray, Graph, Weights
from models.recipe.patches import flat_tokens
from models.recipe.seeded import Seeded

_THREE, _HALVE_BOTH, _HALVE_HEIGHT = (3, 3), (2, 2), (2, 1)
_NORM_EPSILON = 1e-5


@dataclass(frozen=True)
class Stage:
    """A row of blocks at one height.

    Attributes:
        blocks: Sizes of the blocks.
        window: Height and width of what a token sees around itself; None: everything.
    """

    blocks: EncoderConfig
    window: tuple[int, int] | None


@dataclass(frozen=True)
class SvtrConfig:
    """Sizes of a recogniser.

    Attributes:
        height: Of the image in pixels; a quarter of it is halved after every stage but the last.
        width: Of the image in pixels.
        stages: The stages in order.
        out: Channels behind the stages.
        classes: Characters, the blank among them.
    """

    height: int
    width: int
    stages: tuple[Stage, ...]
    out: int
    classes: int

    def grid(self, stage: int) -> tuple[int, int]:
        """Height and width of a stage in tokens."""
        return self.height // 4 >> stage, self.width // 4


def recogniser(config: SvtrConfig, weights: Weights) -> Graph:
    """Build the recogniser."""
    graph = Graph("main_graph", weights)
    shape = ["batch_size", 3, config.height, config.width]
    value = graph.input("x", TensorProto.FLOAT, shape)
    with graph.scope("backbone"):
        for index in range(2):
            with graph.scope(f"patch_embed.{index}"):
                name = f"backbone.patch_embed.patch_embed.{index}"
                value = graph.gelu(_conv_norm(graph, value, name))
        value = flat_tokens(graph, value)
        value = graph.node("Add", value, graph.weight("backbone.pos_embed"))
        for index, stage in enumerate(config.stages):
            with graph.scope(f"blocks{index + 1}"):
                value = _stage(graph, config, value, index)
            value = _image(graph, value, config.grid(index), stage.blocks.hidden)
            if index + 1 < len(config.stages):
                with graph.scope(f"sub_sample{index + 1}"):
                    value = _sub_sample(graph, value, f"backbone.sub_sample{index + 1}")
        value = graph.node("ReduceMean", value, axes=[2], keepdims=1)
        value = graph.conv(value, "backbone.last_conv", (1, 1), bias=False)
        value = graph.node("HardSwish", value)
    with graph.scope("head"):
        value = graph.node("Squeeze", value, graph.constant([2]))
        value = graph.node("Transpose", value, perm=[0, 2, 1])
        value = graph.linear(value, "head.fc")
        value = graph.node("Softmax", value, axis=2)
    steps = config.grid(0)[1]
    graph.output(value, "softmax_0.tmp_0", ["batch_size", steps, config.classes])
    return graph


def _conv_norm(graph: Graph, value: str, name: str) -> str:
    """Halve height and width, and bring channels to the scale that training saw."""
    value = graph.conv(
        value, f"{name}.conv", _THREE, strides=_HALVE_BOTH, padding=(1, 1), bias=False
    )
    parts = ("weight", "bias", "running_mean", "running_var")
    statistics = [graph.weight(f"{name}.norm.{part}") for part in parts]
    return graph.node("BatchNormalization", value, *statistics, epsilon=_NORM_EPSILON)


def _stage(graph: Graph, config: SvtrConfig, value: str, index: int) -> str:
    """Run the blocks of a stage: each branch is added, and the sum normalised."""
    stage = config.stages[index]
    mask = graph.weight(f"backbone.blocks{index + 1}.mask") if stage.window else None
    for block in range(stage.blocks.layers):
        name = f"backbone.blocks{index + 1}.{block}"
        with graph.scope(str(block)):
            with graph.scope("mixer"):
                branch = _mix(graph, stage.blocks, value, f"{name}.mixer", mask)
            value = graph.node("Add", value, branch)
            value = graph.layer_norm(value, f"{name}.norm1", stage.blocks.epsilon)
            with graph.scope("mlp"):
                branch = feed_forward(graph, value, f"{name}.mlp", ("fc1", "fc2"), Graph.gelu)
            value = graph.node("Add", value, branch)
            value = graph.layer_norm(value, f"{name}.norm2", stage.blocks.epsilon)
    return value


def _mix(graph: Graph, config: EncoderConfig, value: str, name: str, mask: str | None) -> str:
    """Attend, with one product for queries, keys and values: [batch, tokens, hidden] -> same."""
    batch, tokens, heads = graph.size(value, 0), graph.size(value, 1), config.heads
    with graph.scope("qkv"):
        joined = graph.linear(value, f"{name}.qkv")
    shape = graph.shape([batch, tokens, 3, heads, config.hidden // heads])
    apart = graph.node("Transpose", graph.node("Reshape", joined, shape), perm=[2, 0, 3, 1, 4])
    query, keys, values = (
        graph.node("Gather", apart, graph.constant(part), axis=0) for part in range(3)
    )
    scale = (config.hidden // heads) ** -0.5
    mixed = attend(graph, query, (keys, values), scale=scale, mask=mask)
    mixed = merge_heads(graph, mixed, config.hidden)
    with graph.scope("proj"):
        return graph.linear(mixed, f"{name}.proj")


def _image(graph: Graph, value: str, grid: tuple[int, int], hidden: int) -> str:
    """Lay tokens out again: [batch, h w, hidden] -> [batch, hidden, h, w]."""
    turned = graph.node("Transpose", value, perm=[0, 2, 1])
    return graph.node("Reshape", turned, graph.shape([graph.size(value, 0), hidden, *grid]))


def _sub_sample(graph: Graph, value: str, name: str) -> str:
    """Halve the height and lay out as tokens."""
    value = graph.conv(value, f"{name}.conv", _THREE, strides=_HALVE_HEIGHT, padding=(1, 1))
    return graph.layer_norm(flat_tokens(graph, value), f"{name}.norm", _NORM_EPSILON)


def local_mask(grid: tuple[int, int], window: tuple[int, int]) -> FloatArray:
    """Return 0 where one token lies in another's window, else -inf: [1, 1, tokens, tokens]."""
    rows, columns = (places.ravel() for places in np.indices(grid))
    near = np.abs(rows[:, None] - rows) <= window[0] // 2
    near &= np.abs(columns[:, None] - columns) <= window[1] // 2
    return np.where(near, 0, -np.inf).astype(np.float32)[None, None]


def seeded_weights(config: SvtrConfig, seed: int) -> dict[str, FloatArray]:
    """Return random weights of a seed, and the masks of local stages."""
    draw, first = Seeded(seed), config.stages[0].blocks.hidden
    height, width = config.grid(0)
    made = {"backbone.pos_embed": draw.normal(1, height * width, first, scale=0.5)}
    for index, (inputs, outputs) in enumerate(((3, first // 2), (first // 2, first))):
        name = f"backbone.patch_embed.patch_embed.{index}"
        made |= draw.conv(f"{name}.conv", inputs, outputs, _THREE, bias=False)
        made |= draw.norm(f"{name}.norm", outputs)
        made[f"{name}.norm.running_mean"] = draw.normal(outputs, scale=0.1)
        made[f"{name}.norm.running_var"] = 1 + np.abs(draw.normal(outputs, scale=0.5))
    for index, stage in enumerate(config.stages):
        name, blocks = f"backbone.blocks{index + 1}", stage.blocks
        if stage.window:
            made[f"{name}.mask"] = local_mask(config.grid(index), stage.window)
        for block in range(blocks.layers):
            made |= _block_weights(draw, blocks, f"{name}.{block}")
        if index + 1 < len(config.stages):
            after = config.stages[index + 1].blocks.hidden
            made |= draw.conv(f"backbone.sub_sample{index + 1}.conv", blocks.hidden, after, _THREE)
            made |= draw.norm(f"backbone.sub_sample{index + 1}.norm", after)
    last = config.stages[-1].blocks.hidden
    made |= draw.conv("backbone.last_conv", last, config.out, (1, 1), bias=False)
    return made | draw.linear("head.fc", config.out, config.classes)


def _block_weights(draw: Seeded, config: EncoderConfig, name: str) -> dict[str, FloatArray]:
    made = draw.linear(f"{name}.mixer.qkv", config.hidden, 3 * config.hidden)
    made |= draw.linear(f"{name}.mixer.proj", config.hidden, config.hidden)
    made |= draw.linear(f"{name}.mlp.fc1", config.hidden, config.inner)
    made |= draw.linear(f"{name}.mlp.fc2", config.inner, config.hidden)
    return (
        made | draw.norm(f"{name}.norm1", config.hidden) | draw.norm(f"{name}.norm2", config.hidden)
    )
