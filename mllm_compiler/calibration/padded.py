"""Samples of padded graphs, from those of the entries that they serve.

A graph of static sizes takes as much of a sample as it has room for. An entry with a cache reads a
sample in pieces of its largest graph, each behind what the pieces before it left in the cache; a
smaller graph takes the first tokens of each piece, behind the same past.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.backends.buckets import Bucketed, bucketed_of
from mllm_compiler.backends.padding import Fit, bound_values
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import CacheAttr
from mllm_compiler.dialects.types import dtype_of, element_of
from mllm_compiler.passes.calibration_data import graph_inputs
from mllm_compiler.passes.graphs import argument_names, graphs, pipeline_of
from mllm_compiler.reference import Array, find_function, run_function
from mllm_compiler.weights import WeightStore

Sample = Mapping[str, Array]

PIECES: Final = 8
"""Pieces of a sample that are read, each behind those before it."""


def write_padded(module: ModuleOp, samples: Path, into: Path, store: WeightStore) -> None:
    """Writes `into/GRAPH/NNNN.npz` for the graphs of a module whose shapes are static.

    Args:
        module: Its graphs serve entries, or are entries themselves.
        samples: `ENTRY/NNNN.npz`.
        into: An empty folder.
        store: The bytes of weights.

    Raises:
        CompileError: A sample does not fit its entry.
    """
    bucketed = bucketed_of(module)
    served = {name for one in bucketed.values() for name in one.variants}
    caches = {cache.graph.data: cache for cache in pipeline_of(module).caches}
    for graph in graphs(module):
        name = graph.sym_name.data
        if name not in served:
            _write(into / name, graph_inputs(str(samples), name))
    for entry, one in bucketed.items():
        reader = _Reader(module, one, caches.get(entry), store)
        made: dict[str, list[Sample]] = {name: [] for name in one.variants}
        for sample in graph_inputs(str(samples), entry):
            for piece in reader.pieces(sample):
                for name in made:
                    made[name].append(reader.padded(name, piece))
        for name, inputs in made.items():
            _write(into / name, inputs)


def _write(folder: Path, samples: list[Sample] | list[dict[str, Array]]) -> None:
    folder.mkdir(parents=True)
    for number, sample in enumerate(samples):
        np.savez(folder / f"{number:04}.npz", allow_pickle=False, **sample)


class _Reader:
    """Reads samples of one entry on its padded graphs.

    Args:
        module: The graphs.
        bucketed: What the entry is without padding.
        cache: Of the entry.
        store: The bytes of weights.
    """

    def __init__(
        self, module: ModuleOp, bucketed: Bucketed, cache: CacheAttr | None, store: WeightStore
    ) -> None:
        self.module, self.bucketed, self.store = module, bucketed, store
        self.largest = max(bucketed.variants, key=lambda n: sum(bucketed.variants[n].values()))
        self.pasts: dict[str, str] = {}
        for layer in range(0 if cache is None else cache.layers.data):
            assert cache is not None
            for kind, name in (("key", cache.key_name(layer)), ("value", cache.value_name(layer))):
                if name in bucketed.inputs and cache.out_name(layer, kind) in bucketed.outputs:
                    self.pasts[name] = cache.out_name(layer, kind)

    def pieces(self, sample: Sample) -> Iterator[Sample]:
        """What is read of a sample, piece by piece; without a cache, its first elements."""
        values = bound_values(self.bucketed, sample)
        sizes = self.bucketed.variants[self.largest]
        past, tokens = self._counted()
        if tokens not in values:
            yield self._part(sample, {s: min(n, sizes[s]) for s, n in values.items()}, {})
            return
        begin, whole = 0, values[tokens]
        kept = {name: sample[name] for name in self.pasts}
        for _ in range(PIECES):
            count = min(sizes[tokens], whole - begin)
            behind = values[past] + begin
            if count < 1 or behind > sizes[past]:
                return
            piece = self._part(sample, {**values, past: behind, tokens: count}, {tokens: begin})
            piece |= kept
            yield piece
            begin += count
            if begin < whole and behind + count <= sizes[past]:
                given = self._run(piece)
                kept = {name: given[out] for name, out in self.pasts.items()}

    def padded(self, graph: str, piece: Sample) -> Sample:
        """As much of a piece as a graph takes, and zeros around it."""
        values, sizes = bound_values(self.bucketed, piece), self.bucketed.variants[graph]
        cut = self._part(piece, {s: min(n, sizes[s]) for s, n in values.items()}, {})
        fit = Fit(self.bucketed, graph, bound_values(self.bucketed, cut))
        return self._fitted(fit, cut)

    def _run(self, piece: Sample) -> Sample:
        fit = Fit(self.bucketed, self.largest, bound_values(self.bucketed, piece))
        padded = self._fitted(fit, piece)
        return fit.cut(run_function(self.module, self.largest, padded, self.store))

    def _fitted(self, fit: Fit, piece: Sample) -> Sample:
        """The inputs of a graph, in its types: some chips have whole numbers of 32 bits only."""
        graph = find_function(self.module, fit.variant)
        padded = fit.pad(piece, argument_names(graph))
        types = [dtype_of(element_of(value)) for value in graph.args]
        return {n: a.astype(t) for (n, a), t in zip(padded.items(), types, strict=True)}

    def _counted(self) -> tuple[str, str]:
        """The symbols of past and new tokens; nothing where the entry has no cache."""
        for name, out in self.pasts.items():
            past = self.bucketed.inputs[name][2].as_symbol()
            new = self.bucketed.outputs[out][2].symbols() - {past}
            if past is not None and len(new) == 1:
                return past, next(iter(new))
        return "", ""

    def _part(
        self, sample: Sample, values: Mapping[str, int], begin: Mapping[str, int]
    ) -> dict[str, Array]:
        """The elements of each input that are left where symbols have smaller values."""

        def part(name: str, array: Array) -> Array:
            dims = self.bucketed.inputs[name]
            sides = zip(dims, array.shape, strict=True)
            return array[tuple(self._slice(dim, n, values, begin) for dim, n in sides)]

        return {name: part(name, array) for name, array in sample.items()}

    def _slice(
        self, dim: Dim, extent: int, values: Mapping[str, int], begin: Mapping[str, int]
    ) -> slice:
        """Along an axis: the last of what is padded before, the first of anything else."""
        count, symbol = min(dim.evaluate(values), extent), dim.as_symbol() or ""
        if symbol in self.bucketed.left:
            return slice(extent - count, extent)
        start = begin.get(symbol, 0)
        return slice(start, start + count)
