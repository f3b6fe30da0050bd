"""Runs a graph at any level of IR, with the past as tensors, and records what its nodes gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from mllm_compiler.dialects.locations import location_name
from mllm_compiler.passes.graphs import last_ops, pipeline_of
from mllm_compiler.reference import Listener, run_function
from mllm_compiler.reference.cpu import CacheState, run_lowered
from mllm_compiler.validate.compare import relative_error
from mllm_compiler.weights import WeightStore

Array = NDArray[np.generic]
Values = Mapping[str, Array]


def run_graph(
    module: ModuleOp,
    graph: FuncOp,
    inputs: Values,
    store: WeightStore,
    *,
    listener: Listener | None = None,
) -> Values:
    """Runs a graph.

    A lowered graph keeps its cache between tokens: the past tensors of `inputs` are put into it,
    and the present ones are read out of it.
    """
    name = graph.sym_name.data
    names = [cache for cache in pipeline_of(module).caches if cache.graph.data == name]
    with np.errstate(all="ignore"):
        if "cpu.cache" not in graph.attributes or not names:
            return run_function(module, name, inputs, store, listener=listener)
        cache, tensors = CacheState(), names[0]
        layers = range(tensors.layers.data)
        for layer in layers:
            sides = (
                (names[0].key_name(layer), cache.keys),
                (names[0].value_name(layer), cache.values),
            )
            for side, held in sides:
                if side in inputs:
                    held[layer] = inputs[side]
                    cache.length = inputs[side].shape[2]
        results = run_lowered(module, name, inputs, store, cache, listener=listener)
    for layer in layers:
        results[tensors.out_name(layer, "key")] = cache.keys[layer]
        results[tensors.out_name(layer, "value")] = cache.values[layer]
    return results


def node_values(module: ModuleOp, graph: FuncOp, inputs: Values, store: WeightStore) -> Values:
    """What each node of the model gave, by its name: the first result of its last op."""
    last = last_ops(graph)
    values: dict[str, Array] = {}

    def listen(op: Operation, results: Sequence[Array]) -> None:
        name = location_name(op)
        if last.get(name) is op:
            values[name] = results[0]

    run_graph(module, graph, inputs, store, listener=listen)
    return values


def first_difference(before: Values, after: Values, allowed: float) -> str:
    """The first node whose value moved further than is allowed; empty where none did.

    Args:
        before: The values of nodes.
        after: The same, in the order in which they were computed.
        allowed: The largest relative error.
    """
    for name, value in after.items():
        expected = before.get(name)
        if expected is None or expected.shape != value.shape:
            continue
        if relative_error(value, expected) > allowed:
            return name
    return ""
