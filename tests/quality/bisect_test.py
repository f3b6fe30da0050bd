"""The layer that spoils a model is suspected first, kept, and the recipe that keeps it passes.

The truth is how the model was made: one weight has an outlier in each row, which four bits a row
cannot hold.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from xdsl.parser import Parser

from mllm_compiler.cli.main import run
from mllm_compiler.dialects import make_context
from mllm_compiler.passes.graphs import graphs
from mllm_compiler.quality.bisect import fewest
from mllm_compiler.quality.layers import NodeError
from mllm_compiler.quality.suspects import suspects
from mllm_compiler.quantisation.recipe import read_recipe, recipe_names
from mllm_compiler.quantisation.recipe_text import keeping, recipe_text

Captured = pytest.CaptureFixture[str]
LAYERS, WIDTH, SPOILT = 5, 32, 3
RECIPE = "w4a16-channel"
GATE = "[quality]\noutput_cosine = 0.97\n"


@pytest.mark.parametrize("most", [1, 2, 5, 8])
def test_the_fewest_that_pass_are_found_in_few_tries(most: int) -> None:
    for truth in range(1, most + 1):
        tried: list[int] = []

        def passes(count: int, tried: list[int] = tried, truth: int = truth) -> bool:
            tried.append(count)
            return count >= truth

        assert fewest(passes, most) == truth
        assert len(set(tried)) <= 2 * most.bit_length()
    assert fewest(lambda count: False, most) is None
    assert fewest(lambda count: True, 0) is None


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_reads_back_from_its_text(name: str, tmp_path: Path) -> None:
    names = ["decoder:/layers.0/MatMul[1]", "decoder:a*b"]
    for recipe in (read_recipe(name), keeping(read_recipe(name), names)):
        path = tmp_path / f"{name}.toml"
        path.write_text(recipe_text(recipe))
        assert read_recipe(str(path)) == recipe
    assert recipe.format_of([names[0]], "projector").bits == 32
    assert recipe.format_of(["decoder:axb"], "decoder") == read_recipe(name).linears


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(11)
    weights = random.standard_normal((LAYERS, WIDTH, WIDTH)) / np.sqrt(WIDTH)
    # The outliers meet nothing: what they cost is the precision of the rest of their rows.
    weights[SPOILT, 0] += 20.0
    weights[SPOILT - 1, :, 0] = 0.0
    nodes = [
        helper.make_node("MatMul", [f"h{i}", f"w{i}"], [f"h{i + 1}"], name=f"/layer.{i}/MatMul")
        for i in range(LAYERS)
    ]
    shape = [1, 6, WIDTH]
    ends = [helper.make_tensor_value_info(f"h{i}", TensorProto.FLOAT, shape) for i in (0, LAYERS)]
    tensors = [
        numpy_helper.from_array(w.astype(np.float32), f"w{i}") for i, w in enumerate(weights)
    ]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), "chain.onnx")
    Path("data", "chain").mkdir(parents=True)
    x = random.standard_normal(shape).astype(np.float32)
    np.savez("data/chain/1.npz", allow_pickle=False, h0=x)
    Path("gates.toml").write_text(GATE)
    return tmp_path / "chain.onnx"


def checked(recipe: str, *words: str) -> int:
    compiled = ["compile", "chain.onnx", "--target", "numpy", "--quant", recipe, "-o"]
    assert run([*compiled, "chain.mllm_bundle"]) == 0
    options = ["--baseline", "chain.onnx", "--data", "data", "--thresholds", "gates.toml"]
    return run(["check", "accuracy", "chain.mllm_bundle", *options, *words])


def test_the_layer_that_spoils_the_model_is_kept(model: Path, capsys: Captured) -> None:
    assert checked(RECIPE, "--quant", RECIPE, "--bisect", "better.toml", "--json") == 3
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert facts["suspects"][0] == f"chain:/layer.{SPOILT}/MatMul"
    assert len(facts["suspects"]) == LAYERS
    assert facts["kept"] == [f"chain:/layer.{SPOILT}/MatMul"]
    assert checked("better.toml") == 0


def test_what_cannot_be_saved_is_said(model: Path, capsys: Captured) -> None:
    Path("gates.toml").write_text("[quality]\noutput_cosine = 1.5\n")
    assert checked(RECIPE, "--quant", RECIPE, "--bisect", "better.toml") == 3
    assert "fail even where all of these layers are kept" in capsys.readouterr().out
    assert not Path("better.toml").exists()


def test_what_passes_is_not_bisected(model: Path) -> None:
    assert checked("w8a8", "--quant", "w8a8", "--bisect", "better.toml") == 0
    assert not Path("better.toml").exists()


def test_a_bundle_cannot_be_compiled_again(model: Path, capsys: Captured) -> None:
    for words in (["--quant", RECIPE], ["--bisect", "better.toml"]):
        assert checked(RECIPE, *words) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "[MLC-U007]" in line


JOINED = """
builtin.module {
  func.func @f(%x: tensor<1x3x2xi8>, %s: tensor<1x3x1xf32>, %r: tensor<1x3x2xf32>) -> tensor<1x3x3xf32> {
    %w = mllm.weight #mllm.blob<"sha256:0000000000000000000000000000000000000000000000000000000000000001", i8, [3, 2]> {name = "a+b"} : tensor<3x2xi8>
    %t = mllm.constant dense<1.0> : tensor<3x1xf32>
    %n = mllm.unary abs %s : (tensor<1x3x1xf32>) -> tensor<1x3x1xf32> loc("norm")
    %y = mllm.quantized_linear %x, %n, %w, %t : (tensor<1x3x2xi8>, tensor<1x3x1xf32>, tensor<3x2xi8>, tensor<3x1xf32>) -> tensor<1x3x3xf32> loc("first")
    %a = mllm.slice %y {starts = #mllm.dims<"0", "0", "0">, steps = array<i64: 1, 1, 1>} : (tensor<1x3x3xf32>) -> tensor<1x3x2xf32> loc("first")
    %b = mllm.slice %y {starts = #mllm.dims<"0", "0", "2">, steps = array<i64: 1, 1, 1>} : (tensor<1x3x3xf32>) -> tensor<1x3x1xf32> loc("second")
    %d = mllm.dequantize %w, %t : (tensor<3x2xi8>, tensor<3x1xf32>) -> tensor<3x2xf32> loc("scores")
    %z = mllm.linear %r, %d : (tensor<1x3x2xf32>, tensor<3x2xf32>) -> tensor<1x3x3xf32> loc("scores")
    func.return %z : tensor<1x3x3xf32>
  }
}
"""  # noqa: E501


def test_each_part_of_a_joined_product_is_suspected_by_itself() -> None:
    module = Parser(make_context(), JOINED).parse_module()
    found = {"norm": 0.3, "first": 0.5, "second": 0.4, "scores": 0.1}
    errors = [NodeError(name=f"f/{n}", cosine=0.9, error=e) for n, e in found.items()]
    added = suspects(graphs(module)[0], errors)
    assert list(added) == ["f:first", "f:second", "f:a", "f:b"]
    assert list(added.values()) == pytest.approx([0.16, 0.07, 0.01, 0.01])
