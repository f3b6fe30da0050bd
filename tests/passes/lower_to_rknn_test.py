"""Lowered to rknn, models give what they gave in mllm, which other tests hold to ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from mllm_compiler.backends.numpy.runner import NumpyRunner
from mllm_compiler.dialects import make_context
from mllm_compiler.errors import CompileError
from mllm_compiler.importer import DimSpec, import_model
from mllm_compiler.pass_run import run_passes
from mllm_compiler.passes.graphs import graphs, pipeline_of
from mllm_compiler.passes.lower_to_rknn import asked_by, build_of
from mllm_compiler.pipelines import QUANTISE, pass_class, pass_names
from mllm_compiler.recipes import build_recipe
from mllm_compiler.validate import seeded_inputs

SIZES = {
    "sequence_length": DimSpec(max=32, buckets=(1, 32)),
    "past_sequence_length": DimSpec(max=64),
}
MODELS = {
    "tiny-llama": SIZES,
    "tiny-gemma3": SIZES,
    "tiny-gpt2": SIZES,
    "tiny-vit": {},
    "tiny-convnext": {},
    "tiny-wav2vec2": {"sequence_length": DimSpec(min=800, max=800)},
    "tiny-whisper": {
        "decoder_sequence_length": DimSpec(max=4, buckets=(1, 4)),
        "past_decoder_sequence_length": DimSpec(max=16),
    },
}


@lru_cache(maxsize=1)
def lowered(name: str, recipe: str = "", soc: str = "rk3588") -> tuple[NumpyRunner, NumpyRunner]:
    """What runs a model before and after the pass; entries pad their inputs and cut results."""
    return lowered_model(build_recipe(name, lambda line: None), MODELS[name], recipe, soc)


def lowered_model(
    path: Path, dims: Mapping[str, DimSpec], recipe: str, soc: str
) -> tuple[NumpyRunner, NumpyRunner]:
    imported = import_model(path, dims=dims)
    options = {
        "infer-shapes": {"static": True},
        "bucket-shapes": {"static": True},
        "place": {"target": "rknn"},
        **{p: {"recipe": recipe} for p in QUANTISE.passes},
        "lower-to-rknn": {"recipe": recipe, "soc": soc},
    }
    module, context = imported.module, make_context(imported.store)
    names = pass_names("rknn", quantised=bool(recipe))
    run_passes(module, [pass_class(p)(**options.get(p, {})) for p in names[:-1]], context)
    before = module.clone()
    run_passes(module, [pass_class(names[-1])(**options[names[-1]])], context)
    module.verify()
    return NumpyRunner(before, imported.store), NumpyRunner(module, imported.store)


@pytest.mark.parametrize("name", MODELS)
def test_lowering_keeps_what_a_model_computes(name: str) -> None:
    before, after = lowered(name)
    source = import_model(build_recipe(name, lambda line: None), dims=MODELS[name]).module
    for graph in graphs(source):
        inputs = seeded_inputs(graph, pipeline_of(source))
        want = before.run(graph.sym_name.data, inputs)
        got = after.run(graph.sym_name.data, inputs)
        assert want.keys() == got.keys()
        for key, array in want.items():
            assert np.abs(got[key] - array).max() <= 2e-5 * np.abs(array).max(), key


@pytest.mark.parametrize(
    ("recipe", "built"), [("w4a16-g32", ("rk3576", "w4a16", "group32"))], ids=["w4a16-g32"]
)
def test_codes_are_given_as_what_they_stand_for(recipe: str, built: tuple[str, ...]) -> None:
    before, after = lowered("tiny-llama", recipe, built[0])
    build = build_of(after.module)
    assert (build.soc.data, build.form.data, build.method.data) == built
    source = import_model(build_recipe("tiny-llama", lambda line: None), dims=SIZES).module
    (graph,) = graphs(source)
    inputs = seeded_inputs(graph, pipeline_of(source))
    want, got = (r.run("decoder", inputs)["logits"] for r in (before, after))
    assert np.abs(got - want).max() <= 2e-5 * np.abs(want).max()


def test_what_a_chip_lacks_is_refused() -> None:
    with pytest.raises(CompileError) as lacking:
        lowered("tiny-llama", "w4a16-g32")
    assert (lacking.value.code, lacking.value.location) == ("MLC-R007", "--soc rk3588")
    with pytest.raises(CompileError) as unknown:
        lowered("tiny-llama", "", "rk3599")
    assert unknown.value.code == "MLC-R007"
    with pytest.raises(CompileError) as dynamic:
        asked_by("w8a8")
    assert dynamic.value.code == "MLC-R001"
    assert "static" in dynamic.value.remedy
