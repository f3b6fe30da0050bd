"""Compiling for MediaTek ahead of time: LiteRT's plugin over the stand-in, as over the library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mllm_compiler.backends.neuron import sdk
from mllm_compiler.backends.neuron.sdk import apply
from mllm_compiler.bundle.verify import LOOK, Policy, open_bundle
from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.errors import CompileError
from mllm_compiler.generation.model import open_model
from mllm_compiler.hal import target
from mllm_compiler.passes.graphs import graphs, pipeline_of
from mllm_compiler.recipes import build_recipe
from mllm_compiler.reference import run_function
from mllm_compiler.validate import seeded_inputs

pytestmark = pytest.mark.vendor


@pytest.fixture
def library(stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in, installed."""
    monkeypatch.setenv("STAND_IN_FOLDER", str(tmp_path))
    monkeypatch.setenv("MLLM_NEURON_ADAPTER", str(stand_in))
    return stand_in


def compiled(bundle: Path, soc: str | None = None) -> list[str]:
    """Compiles tiny-vit; answers with what was warned of."""
    warned: list[str] = []
    model = build_recipe("tiny-vit", lambda line: None)
    request = Request(model=model, target="neuron", output=bundle, soc=soc)
    compile_model(request, warn=warned.append)
    return warned


@pytest.mark.parametrize(("soc", "kit"), [("mt6991", "version8"), ("mt6993", "version9")])
def test_a_bundle_has_what_the_library_made(
    soc: str, kit: str, library: Path, tmp_path: Path
) -> None:
    assert not compiled(tmp_path / "vit.mllm_bundle", soc=soc)
    bundle = open_bundle(tmp_path / "vit.mllm_bundle", LOOK)
    made = bytes(bundle.member("targets/neuron/compiled.tflite"))
    assert made[4:8] == b"TFL3"
    assert b"DISPATCH_OP" in made
    assert soc.encode() in made
    assert bundle.manifest.compatibility.sdk == {"neuropilot": kit}


def test_the_command_of_a_bundle_compiles_its_file(library: Path, tmp_path: Path) -> None:
    compiled(tmp_path / "vit.mllm_bundle")
    bundle = open_bundle(tmp_path / "vit.mllm_bundle", LOOK)
    for name in ("model.tflite", "compile.sh"):
        (tmp_path / name).write_bytes(bundle.member(f"targets/neuron/{name}"))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "NEURON": str(library), "PATH": path}
    subprocess.run(["sh", "compile.sh"], cwd=tmp_path, env=environment, check=True)
    want = bytes(bundle.member("targets/neuron/compiled.tflite"))
    assert len((tmp_path / "compiled.tflite").read_bytes()) == len(want)


def test_a_graph_that_the_library_cuts_is_named(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_REFUSED", ",25,")
    (line,) = compiled(tmp_path / "vit.mllm_bundle")
    assert line.startswith("vision is cut into 3 networks")


def test_litert_runs_the_file_of_a_bundle(tmp_path: Path) -> None:
    """On a CPU; the values are those of the module that the bundle has."""
    compiled(tmp_path / "vit.mllm_bundle")
    opened = open_model(open_bundle(tmp_path / "vit.mllm_bundle", Policy(allow_unsigned=True)))
    module = opened.runner.module
    (graph,) = graphs(module)
    inputs = seeded_inputs(graph, pipeline_of(module))
    want = run_function(module, "vision", inputs, opened.runner.store)
    got = opened.runner.run("vision", inputs)
    assert got.keys() == want.keys()
    for name, array in want.items():
        assert got[name].shape == array.shape
        assert np.allclose(got[name], array, rtol=1e-4, atol=1e-5)


def test_a_missing_library_is_a_line_with_the_plugins_words(tmp_path: Path) -> None:
    compiled(tmp_path / "vit.mllm_bundle")
    file = tmp_path / "model.tflite"
    bundle = open_bundle(tmp_path / "vit.mllm_bundle", LOOK)
    file.write_bytes(bundle.member("targets/neuron/model.tflite"))
    with pytest.raises(CompileError) as caught:
        apply(file, target("neuron").soc(None), tmp_path)
    assert caught.value.code == "MLC-V001"
    assert "Failed to load NeuronAdapter shared library" in caught.value.message


def test_without_litert_the_line_says_how_to_get_it(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> None:
        return None

    monkeypatch.setattr(sdk, "find_spec", absent)
    with pytest.raises(CompileError) as caught:
        compiled(tmp_path / "vit.mllm_bundle")
    assert caught.value.code == "MLC-V001"
    assert "mllm-compiler[neuron]" in caught.value.remedy
    assert not (tmp_path / "vit.mllm_bundle").exists()


def test_a_file_that_is_none_is_refused_in_the_plugins_words(library: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.tflite"
    broken.write_bytes(b"no model")
    with pytest.raises(CompileError) as caught:
        apply(broken, target("neuron").soc(None), library)
    assert caught.value.code == "MLC-V002"
    assert "MediaTek's plugin refuses it: " in caught.value.message
