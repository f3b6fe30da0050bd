"""Models whose values have codes, as `.tflite` files: LiteRT gives what the tfl dialect means.

Bundles are read back, so that encodings go through text and through the file.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.numpy_helper
import onnx.parser
import pytest

from mllm_compiler.backends.tflite.runner import TfliteRunner
from mllm_compiler.bundle.verify import Policy, open_bundle
from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.dialects import tfl
from mllm_compiler.dialects.tfl import TflOp
from mllm_compiler.dialects.types import element_of
from mllm_compiler.generation.model import open_model
from mllm_compiler.passes.graphs import graphs, pipeline_of
from mllm_compiler.recipes import build_recipe
from mllm_compiler.reference import run_function
from mllm_compiler.validate import seeded_inputs
from tests.vendor.measured import Case, answers, cosine, least_cosine, lowered, placed
from tests.vendor.table_test import DECODER, SIZES

pytestmark = pytest.mark.vendor
ISLANDS = {
    "tiny-vit": {8: set(), 16: {"rsqrt"}},
    "tiny-llama": {8: set(), 16: {"rsqrt"}},
    "tiny-svtr": {8: {"hard_swish"}, 16: {"rsqrt", "hard_swish"}},
}
NETWORK = """
<ir_version: 10, opset_import: ["" : 17]>
f (float[4, 16] x, float[48, 16] w, float[48] b, float[10, 48] v) => (float[4, 10] y) {
  h = Gemm <transB = 1> (x, w, b)
  s = Sigmoid (h)
  m = Mul (h, s)
  a = Add (m, h)
  y = Gemm <transB = 1> (a, v)
}
"""
TEXT = "The meeting starts at nine, and nobody is late. Who is muted, and who shares a chart? "


def runner_of(name: str, recipe: str, folder: Path) -> TfliteRunner:
    """The runner of a tiny model, which a text or, without tokens, random inputs calibrated."""
    (folder / "data").mkdir()
    (folder / "data" / "a.txt").write_text(TEXT * 9)
    request = Request(
        model=build_recipe(name, lambda line: None),
        target="tflite",
        quant=recipe,
        dims=SIZES[name],
        data=folder / "data" if SIZES[name] is DECODER else None,
        output=folder / "model.mllm_bundle",
    )
    compile_model(request)
    assert request.output is not None
    runner = open_model(open_bundle(request.output, Policy(allow_unsigned=True))).runner
    assert isinstance(runner, TfliteRunner)
    return runner


@pytest.mark.parametrize(
    "name", ["tiny-vit", "tiny-llama", "tiny-gemma3", "tiny-convnext", "tiny-whisper"]
)
def test_eight_bits_are_equal_code_for_code(name: str, tmp_path: Path) -> None:
    runner = runner_of(name, "w8a8-npu", tmp_path)
    for graph in graphs(runner.module):
        inputs = seeded_inputs(graph, pipeline_of(runner.module))
        got = runner.run_graph(graph.sym_name.data, inputs)
        want = run_function(runner.module, graph.sym_name.data, inputs, runner.store)
        for key, array in want.items():
            np.testing.assert_array_equal(got[key], array)


@pytest.mark.parametrize("recipe", ["w8a16-npu", "w4a16-npu"])
@pytest.mark.parametrize("name", ["tiny-vit", "tiny-llama"])
def test_sixteen_bits_are_nearly_equal(name: str, recipe: str, tmp_path: Path) -> None:
    """LOGISTIC may be a code of 16 bits away, and what reads it."""
    runner = runner_of(name, recipe, tmp_path)
    for graph in graphs(runner.module):
        inputs = seeded_inputs(graph, pipeline_of(runner.module))
        got = runner.run_graph(graph.sym_name.data, inputs)
        want = run_function(runner.module, graph.sym_name.data, inputs, runner.store)
        for key, array in want.items():
            assert cosine(got[key], array) > 0.999999


def test_sines_that_were_always_0_have_codes_that_litert_takes(tmp_path: Path) -> None:
    """It ends the process where a scale is large: a decoder was calibrated on position 0 alone."""
    path = build_recipe("tiny-llama", lambda line: None)
    case = Case("tflite", "tiny-llama", path, "", "w8a16-npu", "", DECODER)
    module, store = placed(case)
    given = {g.sym_name.data: seeded_inputs(g, pipeline_of(module)) for g in graphs(module)}
    assert not given["decoder_1"]["position_ids"].any()
    assert least_cosine(answers(lowered(case, module, store, given, tmp_path))) > 0.999999


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("name", ISLANDS)
def test_what_computes_on_reals_is_known(name: str, bits: int, tmp_path: Path) -> None:
    """Beside these, look-ups and what is computed from positions and masks."""
    runner = runner_of(name, f"w8a{bits}-npu", tmp_path)
    ops = [op for op in runner.module.walk() if isinstance(op, TflOp) and op.operands]
    real = [op for op in ops if str(element_of(op.results[0])) == "f32"]
    around = {
        op.name.removeprefix("tfl.")
        for op in real
        if any(isinstance(v.owner, tfl.DequantizeOp) for v in op.operands)
    }
    assert around == ISLANDS[name][bits]


def test_xnnpack_takes_a_whole_network_of_codes(tmp_path: Path) -> None:
    """It has the operators of the first on codes; of a transformer it lacks softmax and gelu."""
    from ai_edge_litert.compiled_model import CompiledModel
    from ai_edge_litert.hardware_accelerator import HardwareAccelerator

    rng = np.random.default_rng(2)
    weights = {"w": (48, 16), "b": (48,), "v": (10, 48)}
    graph = onnx.parser.parse_model(NETWORK)
    for name, shape in weights.items():
        array = rng.standard_normal(shape).astype(np.float32)
        graph.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(graph, tmp_path / "network.onnx")
    accelerated: list[bool] = []
    for model in (tmp_path / "network.onnx", build_recipe("tiny-vit", lambda line: None)):
        output = tmp_path / "model.mllm_bundle"
        compile_model(Request(model=model, target="tflite", quant="w8a8-npu", output=output))
        bundle = open_bundle(output, Policy(allow_unsigned=True))
        path = tmp_path / "model.tflite"
        path.write_bytes(bundle.member("targets/tflite/model.tflite"))
        made = CompiledModel.from_file(str(path), hardware_accel=HardwareAccelerator.CPU)
        accelerated.append(made.is_fully_accelerated())
    assert accelerated == [True, False]
