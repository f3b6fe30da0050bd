"""The same graphs through ONNX Runtime's QNN provider, which shares no code with `lower-to-qnn`.

It takes every node, builds its own graph of them, and HTP's emulator runs that. Where codes differ,
ONNX Runtime's CPU provider says what the graph means: exactly what our reference does.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from mllm_compiler.backends.onnx.export import export_graph
from mllm_compiler.backends.onnx.write import serialised
from mllm_compiler.backends.qnn.graph import Soc
from mllm_compiler.backends.qnn.sdk import Library
from mllm_compiler.passes.graphs import graphs, pipeline_of
from mllm_compiler.reference import run_function
from mllm_compiler.validate import seeded_inputs
from tests.vendor.qnn_onnx import model_of
from tests.vendor.qnn_provider import RefusedError, run
from tests.vendor.qnn_test import Made, cosine, made, narrowed

pytestmark = pytest.mark.vendor
Arrays = dict[str, np.ndarray]
SM8650 = Soc(name="sm8650", model=57, arch=75)


def given(model: Made, graph: str) -> Arrays:
    """Inputs of a graph, whole numbers in 32 bits."""
    function = next(g for g in graphs(model.mllm) if g.sym_name.data == graph)
    return narrowed(seeded_inputs(function, pipeline_of(model.mllm)))


@pytest.mark.parametrize("name", ["tiny-vit", "tiny-llama"])
def test_halves_are_the_providers_bit_for_bit(name: str, tmp_path: Path) -> None:
    model = made(name)
    with Library(model.artifact.soc) as library:
        library.load(model.binary)
        for graph in graphs(model.qnn):
            inputs = given(model, graph.sym_name.data)
            ours = library.run(graph.sym_name.data, inputs)
            theirs = run(model_of(graph, model.store), inputs, tmp_path, model.artifact.soc)
            assert ours.keys() == theirs.keys()
            for key, array in ours.items():
                np.testing.assert_array_equal(array, theirs[key])


@pytest.mark.parametrize("name", ["tiny-vit", "tiny-convnext", "tiny-llama"])
def test_an_export_runs_whole_in_the_provider(name: str, tmp_path: Path) -> None:
    """What `mllmc export` writes, without a lowering of ours."""
    model = made(name)
    for graph in graphs(model.mllm):
        inputs = seeded_inputs(graph, pipeline_of(model.mllm))
        want = run_function(model.mllm, graph.sym_name.data, inputs, model.store)
        exported = onnx.load_from_string(serialised(export_graph(graph, model.store)))
        got = run(exported, inputs, tmp_path, model.artifact.soc)
        assert want.keys() == got.keys()
        for key, array in want.items():
            assert cosine(got[key], array) > 0.99999


@pytest.mark.parametrize(
    ("name", "form", "least", "cpu"),
    [
        ("tiny-vit", "w8a8-npu", 0.999, 1.0),
        ("tiny-vit", "w8a16-npu", 0.9999, 0.9999999),
        ("tiny-convnext", "w8a8-npu", 0.999, 1.0),
        ("tiny-llama", "w8a8-npu", 0.998, 0.998),
        ("tiny-llama", "w8a16-npu", 0.9999, 0.9999999),
    ],
)
def test_codes_are_the_providers(
    name: str, form: str, least: float, cpu: float, tmp_path: Path
) -> None:
    """The provider multiplies matrices of 16 bits by ones of 8; HTP cuts the norms of a Llama.

    Codes of 8 bits are equal on the CPU, but for what HTP's norms cut and the standard's round.
    """
    model = made(name, recipe=form)
    with Library(model.artifact.soc) as library:
        library.load(model.binary)
        for graph in graphs(model.qnn):
            inputs = given(model, graph.sym_name.data)
            meant = run_function(model.qnn, graph.sym_name.data, inputs, model.store)
            ours = library.run(graph.sym_name.data, inputs)
            written = model_of(graph, model.store)
            theirs = run(written, inputs, tmp_path, model.artifact.soc)
            stated = run(written, inputs, tmp_path)
            assert meant.keys() == ours.keys() == theirs.keys() == stated.keys()
            for key, array in meant.items():
                assert cosine(theirs[key], array) > least
                assert cosine(theirs[key], ours[key]) > least
                if cpu == 1:
                    np.testing.assert_array_equal(stated[key], array)
                assert cosine(stated[key], array) >= min(cpu, 0.9999999)


def test_nothing_runs_beside_the_provider(tmp_path: Path) -> None:
    """A node that it does not take is no work for the CPU in these tests."""
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 17]>
        f (float[4, 4] x) => (float y) { y = Det (x) }"""
    )
    matrix = np.eye(4, dtype=np.float32)
    assert run(model, {"x": matrix}, tmp_path)["y"] == 1
    with pytest.raises(RefusedError, match="fallback to CPU EP has been explicitly disabled"):
        run(model, {"x": matrix}, tmp_path, SM8650)
