"""Runs the entries of a bundle by name, whatever runs its graphs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from mllm_compiler.backends.buckets import Bucketed, bucketed_of
from mllm_compiler.backends.padding import Fit
from mllm_compiler.dialects import make_context
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import CacheAttr
from mllm_compiler.dialects.types import dtype_of, element_of, shape_of
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.graphs import argument, argument_names, pipeline_of, symbol_bound
from mllm_compiler.reference import find_function
from mllm_compiler.weights import WeightStore

Array = NDArray[np.generic]
Extent = tuple[Path, int, int]
"""A file, and the offset and size of a weight in it."""


@dataclass
class Runner(ABC):
    """Runs entries by name; each call is on its own, past tensors are inputs as in the model.

    Attributes:
        module: The module, for what it says of its graphs.
        store: The bytes of its weights.
    """

    module: ModuleOp
    store: WeightStore

    @classmethod
    def load(cls, text: bytes, weights: Iterable[Extent]) -> Self:
        """A runner over the members of a bundle; weights stay where they lie."""
        store = WeightStore()
        for file, offset, nbytes in weights:
            store.add_mapped(file, offset, nbytes)
        return cls(Parser(make_context(store), text.decode()).parse_module(), store)

    def run(self, entry: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of an entry by name.

        Raises:
            CompileError: No such entry, an input is missing or does not fit.
        """
        bucketed = self._bucketed.get(entry)
        if bucketed is not None:
            return self._run_padded(bucketed, inputs)
        check_bounds(self.module, entry, inputs)
        return self.run_graph(entry, inputs)

    def open(self, names: Iterable[str], member: Callable[[str], memoryview]) -> None:
        """Takes what it needs besides the module and weights.

        Args:
            names: The members of the bundle.
            member: The bytes of one.
        """
        del names, member

    @abstractmethod
    def run_graph(self, graph: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of a graph by name, on inputs of its shapes."""

    def empty_past(self, entry: str, name: str) -> Array | None:
        """The past tensor [1, heads, 0, size] of a cache without tokens; None: no such input."""
        dims = self._dims(entry, name)
        if dims is None:
            return None
        bucketed = self._bucketed.get(entry)
        graph = entry if bucketed is None else next(iter(bucketed.variants))
        value = argument(find_function(self.module, graph), name)
        assert value is not None
        batch, heads, _, size = (1 if (n := d.as_int()) is None else n for d in dims)
        return np.zeros((batch, heads, 0, size), dtype_of(element_of(value)))

    def largest(self, entry: str, name: str, axis: int) -> float:
        """The largest extent that an axis of an input may have; infinite where nothing says so."""
        dims = self._dims(entry, name)
        symbol = None if dims is None else dims[axis].as_symbol()
        if symbol is None:
            return math.inf
        if (bucketed := self._bucketed.get(entry)) is not None:
            return max(sizes[symbol] for sizes in bucketed.variants.values())
        return symbol_bound(symbol, dict(pipeline_of(self.module).bound_of))

    def _dims(self, entry: str, name: str) -> Sequence[Dim] | None:
        """The dims of an input; None: no such input."""
        if (bucketed := self._bucketed.get(entry)) is not None:
            return bucketed.inputs.get(name)
        value = argument(find_function(self.module, entry), name)
        return None if value is None else shape_of(value)

    @cached_property
    def _bucketed(self) -> dict[str, Bucketed]:
        return bucketed_of(self.module)

    def _run_padded(self, bucketed: Bucketed, inputs: Mapping[str, Array]) -> dict[str, Array]:
        fit = Fit.of(bucketed, inputs)
        wanted = argument_names(find_function(self.module, fit.variant))
        padded = fit.pad(inputs, wanted)
        return fit.cut(self.run_graph(fit.variant, padded))


def check_bounds(module: ModuleOp, entry: str, inputs: Mapping[str, Array]) -> None:
    """Refuses inputs with a dimension beyond its bounds, as the C runtime does.

    Raises:
        CompileError: MLC-X005.
    """
    function, pipeline = find_function(module, entry), pipeline_of(module)
    largest, least = pipeline.bound_of, pipeline.least_of
    for name, value in zip(argument_names(function), function.args, strict=True):
        for dim, extent in zip(shape_of(value), np.shape(inputs.get(name, ())), strict=False):
            symbol = dim.as_symbol() or ""
            if least.get(symbol, 0) <= extent <= largest.get(symbol, extent):
                continue
            bound = largest[symbol] if extent > largest[symbol] else least[symbol]
            words = "exceeds" if extent > bound else "is below"
            raise CompileError(
                "MLC-X005",
                f"input '{name}': {symbol} = {extent} {words} the compiled bound {bound}",
                location=entry,
                remedy="give another input, or change the bound and compile again",
            )


@dataclass
class Session:
    """A conversation: what one run returned as present is the next one's past.

    Attributes:
        runner: What runs the entries.
        past: The past tensors by the name of the argument.
        shared: Outputs that are inputs of other entries, by entry and name of the input.
    """

    runner: Runner
    past: dict[str, Array] = field(default_factory=dict[str, Array])
    shared: dict[tuple[str, str], Array] = field(default_factory=dict[tuple[str, str], Array])

    def run(self, entry: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of an entry that are no cache; cache and shared tensors are kept."""
        pipeline = pipeline_of(self.runner.module)
        cache = self._cache(entry)
        given = {name: array for (to, name), array in self.shared.items() if to == entry}
        layers = range(0 if cache is None else cache.layers.data)
        for layer in layers:
            assert cache is not None
            given |= self._layer(entry, cache, layer)
        outputs = self.runner.run(entry, {**given, **inputs})
        for edge in pipeline.edges:
            if edge.producer.data == entry:
                to = (edge.consumer.data, edge.input.data)
                self.shared[to] = outputs[edge.output.data]
        for layer in layers:
            assert cache is not None
            for kind, name in (("key", cache.key_name(layer)), ("value", cache.value_name(layer))):
                self.past[name] = outputs.pop(cache.out_name(layer, kind))
        return outputs

    def capacity(self, entry: str) -> float:
        """The tokens that an entry's cache may hold; infinite where it has none, or no bound."""
        cache = self._cache(entry)
        return math.inf if cache is None else self.runner.largest(entry, cache.key_name(0), 2)

    def _cache(self, entry: str) -> CacheAttr | None:
        caches = pipeline_of(self.runner.module).caches
        return next((c for c in caches if c.graph.data == entry), None)

    def _layer(self, entry: str, cache: CacheAttr, layer: int) -> dict[str, Array]:
        """The past of a layer; empty before the first token."""
        tensors: dict[str, Array] = {}
        for name in (cache.key_name(layer), cache.value_name(layer)):
            empty = self.runner.empty_past(entry, name)
            if empty is not None:
                tensors[name] = self.past.setdefault(name, empty)
        return tensors
