"""Models as context binaries: what the library reads back; `table_test.py` runs them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.backends.qnn.emit import QnnArtifact, emit
from mllm_compiler.backends.qnn.graph import GraphFacts
from mllm_compiler.backends.qnn.sdk import BUILD, Library
from mllm_compiler.dialects import make_context
from mllm_compiler.importer import DimSpec, import_model
from mllm_compiler.pass_run import run_passes
from mllm_compiler.passes.graphs import argument_names, graphs, pipeline_of, result_names
from mllm_compiler.pipelines import CACHE, QUANTISE, pass_class, pass_names
from mllm_compiler.recipes import build_recipe
from mllm_compiler.reference import run_function
from mllm_compiler.validate import seeded_inputs
from mllm_compiler.weights import WeightStore

pytestmark = pytest.mark.vendor
SIZES = {
    "sequence_length": DimSpec(max=32, buckets=(1, 32)),
    "past_sequence_length": DimSpec(max=64),
}
MODELS = {
    "tiny-llama": SIZES,
    "tiny-gemma3": SIZES,
    "tiny-vit": {},
    "tiny-convnext": {},
    "tiny-whisper": {
        "decoder_sequence_length": DimSpec(max=4, buckets=(1, 4)),
        "past_decoder_sequence_length": DimSpec(max=16),
    },
}


@dataclass(frozen=True)
class Made:
    """A model as mllm and as qnn ops, and its context binary."""

    mllm: ModuleOp
    qnn: ModuleOp
    store: WeightStore
    artifact: QnnArtifact
    binary: bytes


@lru_cache(maxsize=2)
def made(name: str, soc: str = "sm8650", recipe: str = "") -> Made:
    imported = import_model(build_recipe(name, lambda line: None), dims=MODELS.get(name, {}))
    options = {
        "infer-shapes": {"static": True},
        "bucket-shapes": {"static": True},
        "place": {"target": "qnn"},
        "lower-to-qnn": {"soc": soc},
        **{p: {"recipe": recipe} for p in (*QUANTISE.passes, *CACHE.passes)},
    }
    module, context = imported.module, make_context(imported.store)
    names = pass_names("qnn", quantised=bool(recipe))
    at = names.index("lower-to-qnn")
    run_passes(module, [pass_class(p)(**options.get(p, {})) for p in names[:at]], context)
    before = module.clone()
    with TemporaryDirectory() as data:
        write_samples(before, Path(data))
        options["encode-qnn"] = {"recipe": recipe, "data": data}
        run_passes(module, [pass_class(p)(**options.get(p, {})) for p in names[at:]], context)
    module.verify()
    artifact = emit(module, imported.store)
    with Library(artifact.soc) as library:
        binary = library.prepare(artifact.graphs)
    return Made(before, module, imported.store, artifact, binary)


def test_the_library_reads_back_what_was_emitted() -> None:
    """libQnnSystem, which shares no code of ours, names chip, graphs, inputs and outputs."""
    model = made("tiny-llama")
    with Library(model.artifact.soc) as library:
        facts = library.describe(model.binary)
    assert (facts.build, facts.soc_model) == (BUILD, 57)
    assert [graph.name for graph in facts.graphs] == ["decoder_1", "decoder_32"]
    for graph, read in zip(graphs(model.qnn), facts.graphs, strict=True):
        assert ports(read, "inputs") == set(argument_names(graph))
        assert ports(read, "outputs") == set(result_names(graph))
    ids = next(p for p in facts.graphs[1].inputs if p.name == "input_ids")
    assert (ids.element, ids.dims) == ("i32", (1, 32))
    key = next(p for p in facts.graphs[0].outputs if p.name == "present.0.key")
    assert (key.element, key.dims) == ("f32", (1, 2, 65, 8))


@pytest.mark.parametrize("soc", ["sm8450", "sm8550", "sm8750", "sm8850"])
def test_every_chip_has_its_own_binary(soc: str) -> None:
    model = made("tiny-vit", soc)
    with Library(model.artifact.soc) as library:
        assert library.describe(model.binary).soc_model == model.artifact.soc.model


@pytest.mark.parametrize(
    ("soc", "form", "least"),
    [
        ("sm8350", "w8a8-npu", 0.999),
        ("sm8350", "w8a16-npu", 0.9999),
        ("sm8350", "w4a16-npu", 0.9999),
        ("sm8450", "w8a16-npu", 0.9999),
    ],
)
def test_old_chips_run_an_encoder_of_codes(soc: str, form: str, least: float) -> None:
    """SM8350 has no halves at all; the emulator is one of its own HTP, v68."""
    model = made("tiny-vit", soc, form)
    (graph,) = graphs(model.qnn)
    inputs = seeded_inputs(graph, pipeline_of(model.mllm))
    (want,) = run_function(model.qnn, graph.sym_name.data, inputs, model.store).values()
    with Library(model.artifact.soc) as library:
        assert library.describe(model.binary).soc_model == model.artifact.soc.model
        library.load(model.binary)
        (got,) = library.run(graph.sym_name.data, inputs).values()
    assert cosine(got, want) > least


def test_the_same_model_gives_the_same_bytes() -> None:
    model = made("tiny-vit")
    with Library(model.artifact.soc) as library:
        assert library.prepare(model.artifact.graphs) == model.binary


def write_samples(module: ModuleOp, folder: Path) -> None:
    """One sample of each graph: the inputs that it is compared on."""
    for graph in graphs(module):
        (folder / graph.sym_name.data).mkdir()
        inputs = narrowed(seeded_inputs(graph, pipeline_of(module)))
        np.savez(folder / graph.sym_name.data / "0000.npz", **inputs)


def narrowed(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {k: v.astype(np.int32) if v.dtype == np.int64 else v for k, v in inputs.items()}


def ports(graph: GraphFacts, side: str) -> set[str]:
    return {port.name for port in getattr(graph, side)}


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    x, y = (v.reshape(-1).astype(np.float64) for v in (a, b))
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))
