"""Samples of each graph of a model, from files, and from what other graphs give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from mllm_compiler.calibration.filled import filled
from mllm_compiler.calibration.sources import Sources, read_sources, words_beside
from mllm_compiler.calibration.spoken import spoken
from mllm_compiler.calibration.words import Words
from mllm_compiler.dialects.types import element_of, is_float, rank_of
from mllm_compiler.generation.features import log_mel_of, pixels_of
from mllm_compiler.importer import ModelSpec
from mllm_compiler.passes.calibration_data import read_arrays
from mllm_compiler.passes.graphs import (
    argument,
    argument_names,
    entry_order,
    graphs,
    pipeline_of,
    role_of,
)
from mllm_compiler.quantisation.recipe import Limits
from mllm_compiler.reference import Array, run_function
from mllm_compiler.validate import seeded_inputs
from mllm_compiler.weights import WeightStore

Sample = dict[str, Array]
IDS, EMBEDDINGS, LOGITS = "input_ids", "inputs_embeds", "logits"


@dataclass(frozen=True)
class Model:
    """A model whose graphs are given samples.

    Attributes:
        module: In the mllm dialect, real numbers throughout.
        spec: How text, pixels and sound go in.
        store: Where the bytes of weights lie.
    """

    module: ModuleOp
    spec: ModelSpec
    store: WeightStore


def write_samples(
    model: Model, data: Path | None, into: Path, limits: Limits, warn: Callable[[str], None]
) -> None:
    """Writes `into/GRAPH/NNNN.npz`: the inputs of each graph.

    Args:
        model: The model.
        data: A folder of texts, pictures, WAV files or `.npz` files; without one all is random.
        into: An empty folder.
        limits: How much of the data is taken.
        warn: Is told of each graph whose samples are random.

    Raises:
        CompileError: The folder, or a file of it, cannot be used.
    """
    names = tuple(graph.sym_name.data for graph in graphs(model.module))
    sources = None if data is None else read_sources(data, names)
    maker = _Maker(model, sources, limits)
    for graph in entry_order(model.module):
        name = graph.sym_name.data
        samples = [filled(graph, sample) for sample in maker.inputs(graph)]
        if not samples:
            samples = [dict(seeded_inputs(graph, pipeline_of(model.module)))]
            warn(f"{name}: calibrated on RANDOM inputs, which say nothing of real ones")
        maker.run(graph, samples)
        (into / name).mkdir(parents=True)
        for number, sample in enumerate(samples):
            np.savez(into / name / f"{number:04}.npz", allow_pickle=False, **sample)


@dataclass
class _Maker:
    """Makes the samples of one graph after the other."""

    model: Model
    sources: Sources | None
    limits: Limits
    results: dict[str, list[Mapping[str, Array]]] = field(
        default_factory=dict[str, list[Mapping[str, Array]]]
    )
    last: dict[int, int] = field(default_factory=dict[int, int])

    def __post_init__(self) -> None:
        self.words = Words.of(self.model.module, self.model.spec, self.model.store)
        self.pipeline = pipeline_of(self.model.module)

    def run(self, graph: FuncOp, samples: Sequence[Sample]) -> None:
        """Keeps what other graphs, or a prompt, read of a graph's results."""
        name = graph.sym_name.data
        read = any(e.producer.data == name for e in self.pipeline.edges)
        if not read and role_of(graph) != "projector":
            return
        found = (self._run(name, sample) for sample in samples)
        self.results[name] = [{n: a for n, a in r.items() if n != LOGITS} for r in found]

    def _run(self, name: str, sample: Mapping[str, Array]) -> dict[str, Array]:
        return run_function(self.model.module, name, sample, self.model.store)

    def inputs(self, graph: FuncOp) -> list[Sample]:
        """What is known of each sample of a graph; nothing where nothing fits it."""
        if self.sources is None:
            return []
        name = graph.sym_name.data
        alone = len(graphs(self.model.module)) == 1
        paths = self.sources.tensors.get(name, self.sources.tensors.get("", ()) if alone else ())
        if paths:
            return [read_arrays(path) for path in paths[: self.limits.files]]
        given = self._from_graphs(graph)
        if given and argument(graph, IDS) is not None:
            return [self._spoken(graph, at, sample) for at, sample in enumerate(given)]
        return given or self._from_files(graph, self.sources)

    def _from_graphs(self, graph: FuncOp) -> list[Sample]:
        """Inputs that are results of other graphs, and the cache that those began."""
        name = graph.sym_name.data
        edges = [e for e in self.pipeline.edges if e.consumer.data == name]
        made = {e.producer.data: self.results.get(e.producer.data, []) for e in edges}
        given: list[Sample] = []
        for at in range(min(map(len, made.values()), default=0)):
            sample = {e.input.data: made[e.producer.data][at][e.output.data] for e in edges}
            for results in made.values():
                sample |= self._past(graph, results[at])
            given.append(sample)
        return given

    def _past(self, graph: FuncOp, results: Mapping[str, Array]) -> Sample:
        found: Sample = {}
        known = argument_names(graph)
        for cache in self.pipeline.caches:
            if cache.graph.data != graph.sym_name.data:
                continue
            for layer in range(cache.layers.data):
                for kind, past in (
                    ("key", cache.key_name(layer)),
                    ("value", cache.value_name(layer)),
                ):
                    if past in known and cache.out_name(layer, kind) in results:
                        found[past] = results[cache.out_name(layer, kind)]
        return found

    def _spoken(self, graph: FuncOp, at: int, given: Sample) -> Sample:
        """The tokens that a decoder reads beside what it attends to."""
        assert self.sources is not None
        if role_of(graph) == "decoder-with-past":
            return {**given, IDS: np.array([[self.last[at]]], np.int64)}
        path = self.sources.sounds[at] if at < len(self.sources.sounds) else None
        text = None if path is None else words_beside(path)
        name = graph.sym_name.data
        ids = spoken(self.words, text, given, lambda sample: self._run(name, filled(graph, sample)))
        self.last[at] = int(ids[0, -1])
        return {**given, IDS: ids[:, :-1] if ids.shape[1] > 1 else ids}

    def _from_files(self, graph: FuncOp, sources: Sources) -> list[Sample]:
        settings, most = self.words.settings, self.limits.files
        tokens = argument(graph, IDS) or argument(graph, EMBEDDINGS)
        if tokens is not None:
            return self._from_texts(graph, sources)
        for name, value in zip(argument_names(graph), graph.args, strict=True):
            if not is_float(element_of(value)):
                continue
            if rank_of(value) == 4 and settings.image is not None:
                image = settings.image
                return [{name: pixels_of(p, image)} for p in sources.images[:most]]
            if rank_of(value) == 3 and settings.audio is not None:
                audio = settings.audio
                return [{name: log_mel_of(p, audio)} for p in sources.sounds[:most]]
        return []

    def _from_texts(self, graph: FuncOp, sources: Sources) -> list[Sample]:
        words, ids = self.words, argument(graph, IDS)
        tokens = argument(graph, EMBEDDINGS) if ids is None else ids
        if words.tokenizer is None or tokens is None or (ids is None and words.table is None):
            return []
        windows = words.windows(sources.text(), tokens, self.limits)
        if ids is not None:
            return [{IDS: window} for window in windows]
        given = [{EMBEDDINGS: words.rows(list(window[0]))[None]} for window in windows]
        pictures = [*self.results.values()][-1] if self.results else []
        for path, results in zip(sources.images, pictures, strict=False):
            rows = next(iter(results.values()))
            given.append({EMBEDDINGS: words.picture(path, rows.reshape(-1, rows.shape[-1]))})
        return given
