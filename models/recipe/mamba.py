"""Mamba language models (Gu & Dao 2023), with the names of Hugging Face's `MambaForCausalLM`.

    input_ids [batch, sequence],
    cache_params.past.conv.{layer} [batch, inner, kernel], the last inputs of the convolution,
    cache_params.past.ssm.{layer} [batch, inner, states]
      -> logits [batch, sequence, vocab], cache_params.present.{conv,ssm}.{layer}, of those shapes

A past of zeros begins a text. The recurrence is an ONNX `Scan` over the tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, TensorProto, helper

from models.recipe.drawn import DrawnGraph
from models.recipe.graph import Dim

_STEPS = ("batch_size", "sequence_length")
_EPSILON = 1e-5
_EMBEDDING = "backbone.embeddings"


@dataclass(frozen=True)
class MambaConfig:
    """Sizes of a decoder.

    Attributes:
        vocab: Number of tokens.
        hidden: Width of the residual stream.
        layers: Number of blocks.
        inner: Channels of a block.
        states: Of each channel.
        kernel: Tokens that the convolution sees.
        rank: Of the step widths before they are projected to channels.
    """

    vocab: int
    hidden: int
    layers: int
    inner: int
    states: int
    kernel: int
    rank: int


def decoder(config: MambaConfig, seed: int) -> DrawnGraph:
    """Build the decoder with weights of a seed."""
    graph = DrawnGraph(seed)
    ids = graph.input("input_ids", TensorProto.INT64, _STEPS)
    pasts = [
        (
            _take(graph, "conv", index, [config.inner, config.kernel]),
            _take(graph, "ssm", index, [config.inner, config.states]),
        )
        for index in range(config.layers)
    ]
    with graph.scope("backbone"):
        value = graph.embed(ids, _EMBEDDING, config.vocab, config.hidden)
        for index, past in enumerate(pasts):
            name = f"backbone.layers.{index}"
            with graph.scope(f"layers.{index}"):
                normed = graph.normalise_rms(value, f"{name}.norm", config.hidden, _EPSILON)
                with graph.scope("mixer"):
                    branch = _mixer(graph, config, normed, index, past)
                value = graph.node("Add", value, branch)
        value = graph.normalise_rms(value, "backbone.norm_f", config.hidden, _EPSILON)
    with graph.scope("lm_head"):
        turned = graph.node("Transpose", graph.weight(f"{_EMBEDDING}.weight"), perm=[1, 0])
        logits = graph.node("MatMul", value, turned)
    graph.output(logits, "logits", [*_STEPS, config.vocab])
    graph.sort_outputs(first="logits")
    return graph


def _take(graph: DrawnGraph, kind: str, index: int, shape: list[Dim]) -> str:
    name = f"cache_params.past.{kind}.{index}"
    return graph.input(name, TensorProto.FLOAT, ["batch_size", *shape])


def _give(graph: DrawnGraph, kind: str, index: int, value: str, shape: list[Dim]) -> None:
    graph.output(value, f"cache_params.present.{kind}.{index}", ["batch_size", *shape])


def _mixer(
    graph: DrawnGraph, config: MambaConfig, value: str, index: int, past: tuple[str, str]
) -> str:
    """Convolve, scan and gate: [batch, sequence, hidden] -> same shape."""
    name, inner = f"backbone.layers.{index}.mixer", config.inner
    both = graph.dense(value, f"{name}.in_proj", config.hidden, 2 * inner, bias=False)
    both = graph.node("Transpose", both, perm=[0, 2, 1])
    stream, gate = graph.split(both, [inner, inner], 1)
    stream = _convolve(graph, config, stream, index, past[0])
    mixed = _select(graph, config, stream, index, past[1])
    mixed = graph.node("Mul", mixed, graph.node("Mul", gate, graph.node("Sigmoid", gate)))
    mixed = graph.node("Transpose", mixed, perm=[0, 2, 1])
    return graph.dense(mixed, f"{name}.out_proj", inner, config.hidden, bias=False)


def _convolve(graph: DrawnGraph, config: MambaConfig, stream: str, index: int, past: str) -> str:
    """Convolve each channel over the last tokens, [batch, inner, sequence] -> same shape."""
    name, kernel, inner = f"backbone.layers.{index}.mixer.conv1d", config.kernel, config.inner
    joined = graph.node("Concat", past, stream, axis=2)
    end = np.iinfo(np.int64).max
    _give(graph, "conv", index, graph.slice(joined, -kernel, end, 2), [inner, kernel])
    convolved = graph.node(
        "Conv",
        graph.slice(joined, 1, end, 2),
        graph.draw(f"{name}.weight", inner, 1, kernel, scale=kernel**-0.5),
        graph.draw(f"{name}.bias", inner, scale=0.1),
        dilations=[1],
        group=inner,
        kernel_shape=[kernel],
        pads=[0, 0],
        strides=[1],
    )
    return graph.node("Mul", convolved, graph.node("Sigmoid", convolved))


def _select(graph: DrawnGraph, config: MambaConfig, stream: str, index: int, past: str) -> str:
    """The selective state space of each channel, [batch, inner, sequence] -> same shape."""
    name, inner, states = f"backbone.layers.{index}.mixer", config.inner, config.states
    rows = graph.node("Transpose", stream, perm=[0, 2, 1])
    sizes = [config.rank, states, states]
    width = graph.dense(rows, f"{name}.x_proj", inner, sum(sizes), bias=False)
    step, into, out = graph.split(width, sizes, 2)
    step = graph.dense(step, f"{name}.dt_proj", config.rank, inner)
    step = graph.node("Transpose", graph.node("Softplus", step), perm=[0, 2, 1])
    step = graph.unsqueeze(step, 3)
    rate = graph.draw(f"{name}.A_log", inner, states, scale=0.5, mean=0.5)
    rate = graph.unsqueeze(graph.node("Neg", graph.node("Exp", rate)), 0, 2)
    kept = graph.node("Exp", graph.node("Mul", rate, step))
    added = graph.node("Mul", step, graph.unsqueeze(into, 1))
    added = graph.node("Mul", added, graph.unsqueeze(stream, 3))
    last, read = graph.nodes(
        "Scan",
        *(past, kept, added, out),
        outputs=2,
        body=_body(config),
        num_scan_inputs=3,
        scan_input_axes=[2, 2, 1],
        scan_output_axes=[2],
    )
    _give(graph, "ssm", index, last, [inner, states])
    skip = graph.unsqueeze(graph.draw(f"{name}.D", inner, scale=0.1, mean=1.0), 0, 2)
    return graph.node("Add", read, graph.node("Mul", stream, skip))


def _body(config: MambaConfig) -> GraphProto:
    """One token: the states decay, take the input in, and are read."""
    shape = ["batch_size", config.inner, config.states]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
        for name, dims in (
            ("state", shape),
            ("kept", shape),
            ("added", shape),
            ("out", [shape[0], config.states]),
        )
    ]
    outputs = [
        helper.make_tensor_value_info("new_state", TensorProto.FLOAT, shape),
        helper.make_tensor_value_info("read", TensorProto.FLOAT, shape[:2]),
    ]
    last = helper.make_tensor("last", TensorProto.INT64, [1], [-1])
    nodes = [
        helper.make_node("Constant", [], ["axis"], name="Constant", value=last),
        helper.make_node("Mul", ["kept", "state"], ["decayed"], name="Mul"),
        helper.make_node("Add", ["decayed", "added"], ["new_state"], name="Add"),
        helper.make_node("Unsqueeze", ["out", "axis"], ["column"], name="Unsqueeze"),
        helper.make_node("MatMul", ["new_state", "column"], ["product"], name="MatMul"),
        helper.make_node("Squeeze", ["product", "axis"], ["read"], name="Squeeze"),
    ]
    return helper.make_graph(nodes, "scan", inputs, outputs)
