"""`--validate`: runs the module before and after each pass and compares.

The inputs are seeded and small: each symbol gets a value within its bound, so that a whole model
runs in moments. A pass that exceeds what it promises is named with the graph and the result.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from mllm_compiler.dialects.dims import dims_of
from mllm_compiler.dialects.mllm import PipelineOp
from mllm_compiler.dialects.types import dtype_of, ranked, tensor_type
from mllm_compiler.errors import CompileError
from mllm_compiler.pass_run import PassRecord
from mllm_compiler.passes.graphs import argument_names, graphs, pipeline_of, symbol_bound
from mllm_compiler.passes.infer_shapes import infer_function
from mllm_compiler.reference import run_function
from mllm_compiler.reference.cpu import CacheState, run_lowered
from mllm_compiler.weights import WeightStore

Values = Mapping[str, NDArray[np.generic]]

SMALL = (3, 4, 5)
"""Sizes that symbols get in turn, where their bounds allow."""

IDS = 8
"""Whole numbers whose meaning is unknown are smaller than this: ids, indices."""

TYPES = 2
"""The least number of types that a model of token types knows."""


@dataclass
class Validator:
    """Compares each graph's results with those before the pass.

    Attributes:
        store: The bytes of weights.
        tolerances: The largest relative error that each pass promises.
        errors: The largest relative error of each pass that ran.
    """

    store: WeightStore
    tolerances: Mapping[str, float]
    errors: dict[str, float] = field(default_factory=dict[str, float])
    _inputs: dict[str, Values] = field(default_factory=dict[str, Values])
    _texts: dict[str, str] = field(default_factory=dict[str, str])
    _before: dict[str, Values] = field(default_factory=dict[str, Values])

    def after(self, record: PassRecord, module: ModuleOp) -> None:
        """Runs every graph that is not what it was, and compares with what it gave before.

        Raises:
            CompileError: `MLC-P001`, a result is further away than the pass promises.
        """
        now: dict[str, Values] = {}
        worst = 0.0
        for graph in graphs(module):
            name = graph.sym_name.data
            if name not in self._inputs:
                self._inputs[name] = seeded_inputs(graph, pipeline_of(module))
            text, was = str(graph), self._texts.get(name)
            self._texts[name] = text
            if text == was:
                now[name] = self._before[name]
                continue
            now[name] = run_graph(module, graph, self._inputs[name], self.store)
            for result, value in now[name].items():
                expected = self._before.get(name, {}).get(result)
                if expected is not None:
                    error = relative_error(value, expected)
                    self._judge(record.name, name, result, error)
                    worst = max(worst, error)
        self._before = now
        self.errors[record.name] = worst

    def _judge(self, pass_name: str, graph: str, result: str, error: float) -> None:
        allowed = self.tolerances.get(pass_name, 0.0)
        if error <= allowed:
            return
        raise CompileError(
            "MLC-P001",
            f"'{pass_name}' changed '{result}' by {error:.2e}, it promises at most {allowed:.0e}",
            location=graph,
            remedy="--dump-dir shows the module before and after; please report it",
        )


def run_graph(module: ModuleOp, graph: FuncOp, inputs: Values, store: WeightStore) -> Values:
    """Runs a graph at any level of IR.

    A lowered graph keeps its cache between tokens: the past tensors of `inputs` are put into it,
    and the present ones are read out of it.
    """
    name = graph.sym_name.data
    names = [cache for cache in pipeline_of(module).caches if cache.graph.data == name]
    if "cpu.cache" not in graph.attributes or not names:
        return run_function(module, name, inputs, store)
    cache, layers = CacheState(), range(names[0].layers.data)
    for layer in layers:
        sides = (names[0].key_name(layer), cache.keys), (names[0].value_name(layer), cache.values)
        for side, held in sides:
            if side in inputs:
                held[layer] = inputs[side]
                cache.length = inputs[side].shape[2]
    results = run_lowered(module, name, inputs, store, cache)
    for layer in layers:
        results[names[0].out_name(layer, "key")] = cache.keys[layer]
        results[names[0].out_name(layer, "value")] = cache.values[layer]
    return results


def relative_error(value: NDArray[np.generic], expected: NDArray[np.generic]) -> float:
    """The largest difference over the largest expected magnitude; infinite where shapes differ."""
    if value.shape != expected.shape:
        return float("inf")
    if value.size == 0:
        return 0.0
    left, right = value.astype(np.float64), expected.astype(np.float64)
    if not np.array_equal(np.isfinite(left), np.isfinite(right)):
        return float("inf")
    finite = np.isfinite(right)
    difference = np.abs(np.where(finite, left, 0) - np.where(finite, right, 0)).max()
    scale = np.abs(np.where(finite, right, 0)).max()
    return float(difference / scale) if scale > 0 else float(difference)


def seeded_inputs(graph: FuncOp, pipeline: PipelineOp) -> Values:
    """Inputs of a graph that are the same each time, small, and mean something to a model."""
    kinds = [tensor_type(argument) for argument in graph.args]
    symbols = {s for kind in kinds for dim in dims_of(kind) for s in dim.symbols()}
    small = symbol_sizes(symbols, pipeline.bound_of, pipeline.least_of)
    sizes = filling_sizes(graph, small, pipeline.bound_of)
    inputs: dict[str, NDArray[np.generic]] = {}
    for name, kind in zip(argument_names(graph), kinds, strict=True):
        shape = tuple(dim.evaluate(sizes) for dim in dims_of(kind))
        inputs[name] = seeded_value(name, dtype_of(kind.element_type), shape, sizes)
    return inputs


def symbol_sizes(
    symbols: Iterable[str], bounds: Mapping[str, int], least: Mapping[str, int]
) -> dict[str, int]:
    """A small value in the range of each symbol; `total_x` is `past_x` and `x` together."""
    sizes = {
        symbol: max(
            min(symbol_bound(symbol, dict(bounds)), SMALL[index % len(SMALL)]),
            least.get(symbol, 0),
        )
        for index, symbol in enumerate(sorted(symbols))
    }
    for symbol in sizes:
        stem = symbol.removeprefix("total_")
        if stem != symbol and stem in sizes and f"past_{stem}" in sizes:
            sizes[symbol] = sizes[stem] + sizes[f"past_{stem}"]
    return sizes


def filling_sizes(
    graph: FuncOp, sizes: Mapping[str, int], bounds: Mapping[str, int]
) -> dict[str, int]:
    """The sizes, grown within their bounds until no value of the graph is empty.

    A sound must be longer than the windows that slide over it.
    """
    inferred, grown = graph.clone(), dict(sizes)
    infer_function(inferred)
    values = [r for op in inferred.walk() for r in op.results]
    kinds = [kind for v in values if (kind := ranked(v)) is not None]
    dims = {d for kind in kinds for d in dims_of(kind) if not d.unknown}
    dims = {d for d in dims if d.symbols() and d.symbols() <= grown.keys()}
    while empty := {s for d in dims if d.evaluate(grown) < 1 for s in d.symbols()}:
        larger = {s: min(2 * grown[s], symbol_bound(s, dict(bounds))) for s in empty}
        if larger.items() <= grown.items():
            break
        grown |= larger
    return grown


def seeded_value(
    name: str, dtype: np.dtype[np.generic], shape: tuple[int, ...], sizes: Mapping[str, int]
) -> NDArray[np.generic]:
    """An input by its name: masks are ones, positions count on, the rest is random."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    if dtype.kind == "f" or dtype.name == "bfloat16":
        return (random.standard_normal(shape) * 0.5).astype(dtype)
    if "mask" in name or dtype.kind == "b":
        return np.ones(shape, dtype)
    if "position" in name:
        past = next((size for symbol, size in sizes.items() if symbol.startswith("past")), 0)
        return np.broadcast_to(np.arange(past, past + shape[-1]), shape).astype(dtype)
    return random.integers(0, TYPES if "token_type" in name else IDS, shape).astype(dtype)
