"""What is emitted for Rockchip's toolkit, without it: ONNX that ONNX Runtime runs as meant."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from mllm_compiler.backends.rknn.compile import compile_module, write_files
from mllm_compiler.backends.rknn.emit import MOST_SAMPLES, RknnArtifact, emit
from mllm_compiler.backends.rknn.read import read_rknn
from mllm_compiler.backends.rknn.sdk import check, find_toolkit, need_toolkit
from mllm_compiler.bundle.verify import LOOK, open_bundle
from mllm_compiler.cli.main import run as main
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.graphs import graphs, pipeline_of
from mllm_compiler.recipes import build_recipe
from mllm_compiler.reference import run_function
from mllm_compiler.validate import seeded_inputs
from mllm_compiler.weights import WeightStore
from tests.backends.rknn_graphs import Case, cases, inputs_of, module_of
from tests.passes.lower_to_rknn_test import lowered

Array = np.ndarray


@pytest.fixture(autouse=True)
def without_the_toolkit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLLM_RKNN", str(tmp_path / "none"))


def run(
    folder: Path, artifact: RknnArtifact, graph: str, inputs: Mapping[str, Array]
) -> list[Array]:
    """What ONNX Runtime makes of a graph's file, which `onnx` finds no fault with."""
    file = str(folder / artifact.plan.graphs[graph].onnx)
    onnx.checker.check_model(file, full_check=True)
    assert [(o.domain, o.version) for o in onnx.load(file).opset_import] == [("", 19)]
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    return session.run(list(artifact.plan.graphs[graph].outputs), dict(inputs))


@pytest.mark.parametrize("case", cases(), ids=str)
def test_an_op_is_the_standards(case: Case, tmp_path: Path) -> None:
    """ONNX Runtime computes of each op what the reference of the dialect says."""
    store = WeightStore()
    module = module_of([case], "rk3588", store)
    artifact = emit(module, store)
    write_files(artifact, store, tmp_path)
    want = run_function(module, case.op, inputs_of(case), store)
    for array, found in zip(
        want.values(), run(tmp_path, artifact, case.op, inputs_of(case)), strict=True
    ):
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        np.testing.assert_allclose(found, array, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-vit", "tiny-whisper", "tiny-convnext"])
def test_onnx_runtime_gives_what_the_model_gives(name: str, tmp_path: Path) -> None:
    _, after = lowered(name)
    artifact = emit(after.module, after.store)
    write_files(artifact, after.store, tmp_path)
    for graph in graphs(after.module):
        label = graph.sym_name.data
        inputs = seeded_inputs(graph, pipeline_of(after.module))
        want = run_function(after.module, label, inputs, after.store)
        found = run(tmp_path, artifact, label, inputs)
        for key, array in zip(artifact.plan.graphs[label].outputs, found, strict=True):
            assert np.abs(array - want[key]).max() <= 1e-5 * np.abs(want[key]).max()


def test_graphs_share_the_file_of_their_weights() -> None:
    _, after = lowered("tiny-llama")
    artifact = emit(after.module, after.store)
    places = [
        {t.name: [e.value for e in t.external_data] for t in model.graph.initializer}
        for model in (onnx.load_from_string(artifact.files[f"{g}.onnx"]) for g in artifact.graphs)
    ]
    assert artifact.graphs == ("decoder_1", "decoder_32")
    shared = places[0]["model.embed_tokens.weight"]
    assert shared == places[1]["model.embed_tokens.weight"]
    assert shared[0] == "weights.bin"


def test_samples_are_a_line_each_in_the_order_of_the_inputs(tmp_path: Path) -> None:
    _, after = lowered("tiny-llama", "w4a16-g32", "rk3576")
    inputs = {
        g.sym_name.data: seeded_inputs(g, pipeline_of(after.module)) for g in graphs(after.module)
    }
    with pytest.raises(CompileError) as caught:
        emit(after.module, after.store, str(tmp_path))
    assert caught.value.code == "MLC-Q002"
    for name, arrays in inputs.items():
        (tmp_path / name).mkdir()
        for at in range(MOST_SAMPLES + 1):
            np.savez(tmp_path / name / f"{at:04}.npz", allow_pickle=False, **arrays)
    artifact = emit(after.module, after.store, str(tmp_path))
    write_files(artifact, after.store, tmp_path / "out")
    plan = json.loads((tmp_path / "out" / "build.json").read_text())
    assert (plan["soc"], plan["form"], plan["method"]) == ("rk3576", "w4a16", "group32")
    for name, about in plan["graphs"].items():
        lines = (tmp_path / "out" / about["dataset"]).read_text().splitlines()
        assert len(lines) == MOST_SAMPLES
        files = lines[0].split(" ")
        assert len(files) == len(about["inputs"])
        for file, wanted in zip(files, about["inputs"], strict=True):
            assert np.array_equal(np.load(tmp_path / "out" / file), inputs[name][wanted])


def test_a_bundle_without_the_toolkit_has_all_that_it_needs(tmp_path: Path) -> None:
    model, path = build_recipe("tiny-vit", lambda line: None), tmp_path / "vit.mllm_bundle"
    words = ["compile", str(model), "--target", "rknn", "-o", str(path), "--unsigned"]
    assert main(words) == 0
    bundle = open_bundle(path, LOOK)
    assert bundle.manifest.compatibility.soc == ("rk3588",)
    assert not bundle.manifest.compatibility.sdk
    wanted = {f"targets/rknn/{n}" for n in ("build.json", "build.py", "vision.onnx", "weights.bin")}
    assert wanted <= set(bundle.names())
    assert not any(name.endswith(".rknn") for name in bundle.names())


def test_without_the_toolkit_a_line_says_how_to_get_it() -> None:
    assert find_toolkit() is None
    with pytest.raises(CompileError) as caught:
        need_toolkit()
    assert (caught.value.code, caught.value.exit_code) == ("MLC-V001", 4)
    assert ".venv-rknn" in caught.value.remedy
    told: list[str] = []
    _, after = lowered("tiny-vit")
    assert not compile_module(after.module, after.store, "", told.append).files
    assert "make .venv-rknn" in told[0]


def test_the_words_of_the_toolkit_are_read() -> None:
    check(0, "building a\nE RKNN: Unkown op target: 0\n")
    faults = [
        (0, "building a\nbuilding b\nW RKNN: Meet RKNN unsupport Operator: name = 'n'", "MLC-V002"),
        (1, "building b\nTraceback\nValueError: Unsupport onnx opset 20, need <= 19!", "MLC-V002"),
        (-11, "building b\nD RKNN: start: rknn::RKNNSubgraphManager", "MLC-V003"),
    ]
    for status, printed, code in faults:
        with pytest.raises(CompileError) as caught:
            check(status, printed)
        assert (caught.value.code, caught.value.location) == (code, "b")
        assert printed.splitlines()[-1].split(": ", 1)[1] in caught.value.message


def test_a_file_of_another_format_is_refused() -> None:
    for raw in (b"", b"RKNN" + bytes(80), b"TFL3" + bytes(80)):
        with pytest.raises(CompileError) as caught:
            read_rknn(raw, "decoder_1")
        assert caught.value.code == "MLC-V002"


def test_the_stand_in_for_torch_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import import_module

    from mllm_compiler.backends.rknn.sdk import STAND_IN

    finders = list(sys.meta_path)
    monkeypatch.syspath_prepend(str(STAND_IN))
    monkeypatch.setattr(sys, "meta_path", finders)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    torch = import_module("torch")
    parts = torch.split(torch.arange(6).reshape([2, 3]), [1, 2], dim=1)
    assert np.array_equal(torch.cat([parts[1], parts[0]], dim=1).numpy(), [[1, 2, 0], [4, 5, 3]])
    assert issubclass(torch.nn.Module, object)
    with pytest.raises(RuntimeError, match=r"torch\.nn\.Linear is not in the stand-in"):
        torch.nn.Linear(3, 4)
    monkeypatch.delitem(sys.modules, "torch")
