"""Recipes and optimum's folders from ONNX to both targets, graph by graph, against ONNX Runtime."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.backends.c.artifact import CArtifact
from mllm_compiler.backends.c.emit import emit
from mllm_compiler.backends.c.sdk import CRunner
from mllm_compiler.backends.numpy.runner import NumpyRunner
from mllm_compiler.dialects import make_context
from mllm_compiler.flops import lifted_share
from mllm_compiler.importer import Imported, import_model
from mllm_compiler.pass_run import run_passes
from mllm_compiler.passes.graphs import pipeline_of
from mllm_compiler.pipelines import pass_class, pass_names
from mllm_compiler.recipes import FOLDER, build_recipe, recipe_names

TINY = {
    name: tuple(tomllib.loads((FOLDER / name / "model.toml").read_text())["graphs"])
    for name in recipe_names()
    if name.startswith("tiny-")
}
EXPORTS = Path(__file__).parents[1] / "passes" / "exports" / "optimum"
EXPORTED = {
    "llama": ("decoder",),
    "phi3": ("decoder",),
    "gpt2": ("decoder",),
    "whisper": ("encoder", "decoder", "decoder_with_past"),
}
"""Folders that optimum wrote (tests/passes/optimum_exports_test.py says of what)."""
REAL = {
    "dinov2-s14": ("vision",),
    "smollm2-135m": ("decoder",),
    "whisper-base": ("encoder", "decoder", "decoder_with_past"),
    "meeting-vlm": ("projector", "decoder"),
}
CASES = [
    *(
        pytest.param(n, g, 1e-5, id=f"{n}-{g}")
        for n, gs in {**TINY, **EXPORTED}.items()
        for g in gs
    ),
    *(
        pytest.param(n, g, 1e-4, id=f"{n}-{g}", marks=pytest.mark.slow)
        for n, gs in REAL.items()
        for g in gs
    ),
]
SAMPLES = 400
SIZES = {
    "batch_size": 1,
    "text_batch_size": 3,
    "image_batch_size": 2,
    "sequence_length": 3,
    "past_sequence_length": 4,
    "encoder_sequence_length": 20,
}


@dataclass(frozen=True)
class Recipe:
    """A recipe at both ends: what the target numpy runs, and what the C runtime runs."""

    folder: Path
    imported: Imported
    lifted: ModuleOp
    artifact: CArtifact


@lru_cache(maxsize=1)
def recipe(name: str) -> Recipe:
    folder = EXPORTS / name if name in EXPORTED else build_recipe(name, lambda line: None)
    imported = import_model(folder)
    context, module = make_context(imported.store), imported.module
    names = pass_names("c")
    lower = names.index("lower-to-cpu")
    run_passes(module, [pass_class(p)() for p in names[:lower]], context)
    assert lifted_share(module) == 1.0
    assert not [op for op in module.walk() if op.name.startswith("onnx.")]
    lifted = module.clone()
    run_passes(module, [pass_class(p)() for p in names[lower:]], context)
    return Recipe(folder, imported, lifted, emit(module))


def random_inputs(session: onnxruntime.InferenceSession, seed: int) -> dict[str, np.ndarray]:
    rng, made = np.random.default_rng(seed), dict[str, np.ndarray]()
    past = (
        SIZES["past_sequence_length"] if any("past" in i.name for i in session.get_inputs()) else 0
    )
    for given in session.get_inputs():
        sizes = {**SIZES, "total_sequence_length": past + SIZES["sequence_length"]}
        if given.name == "input_values":
            sizes["sequence_length"] = SAMPLES
        shape = [d if isinstance(d, int) else size_of(d, sizes) for d in given.shape]
        if given.name.endswith("attention_mask"):
            made[given.name] = np.ones(shape, np.int64)
            made[given.name][:, 0] = 0
        elif given.name == "position_ids":
            made[given.name] = np.arange(past, past + shape[1])[None]
        elif "int64" in given.type:
            drawn = rng.integers(0, 2 if given.name == "token_type_ids" else 40, shape)
            made[given.name] = np.sort(drawn) if given.name == "bbox" else drawn
        else:
            made[given.name] = rng.standard_normal(shape).astype(np.float32)
    return made


def size_of(symbol: str, sizes: dict[str, int]) -> int:
    if symbol in sizes:
        return sizes[symbol]
    if "past" in symbol and "+" in symbol:
        return sizes["past_sequence_length"] + sizes["sequence_length"]
    return sizes["past_sequence_length"] if "past" in symbol else sizes["sequence_length"]


@pytest.mark.parametrize(("name", "graph", "tolerance"), CASES)
def test_a_graph_gives_what_onnx_runtime_gives(name: str, graph: str, tolerance: float) -> None:
    made = recipe(name)
    spec = made.imported.spec.graphs[graph]
    session = onnxruntime.InferenceSession(made.folder / spec.file)
    inputs = random_inputs(session, seed=3)
    names = [o.name for o in session.get_outputs()]
    want = dict(zip(names, session.run(names, inputs), strict=True))
    with CRunner(made.artifact, made.imported.store, threads=2) as runner:
        on_c = runner.run(graph, inputs)
    on_numpy = NumpyRunner(made.lifted, made.imported.store).run(graph, inputs)
    edges = pipeline_of(made.lifted).edges
    carried = {e.output.data for e in edges if e.producer.data == graph}
    for got in (on_c, on_numpy):
        assert got.keys() == want.keys() | carried
        for output, array in want.items():
            scale = np.abs(array).max()
            assert np.abs(got[output] - array).max() <= tolerance * scale, output
