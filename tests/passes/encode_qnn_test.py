"""Halves are for chips that have them; codes mean what the real graph computes, within a step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from xdsl.parser import Parser

from mllm_compiler.dialects import make_context, qnn
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.encode_qnn import EncodeQnn
from mllm_compiler.passes.graphs import block_of, graphs
from mllm_compiler.reference import run_function

GRAPH = """func.func @f(%x: tensor<4xf32>) -> tensor<4xf32>
    attributes {{qnn.soc = #qnn.soc<"{soc}", {model}, {arch}>}} {{
  %y = qnn.relu %x : (tensor<4xf32>) -> tensor<4xf32> loc("/relu")
  func.return %y : tensor<4xf32>
}}"""


@pytest.mark.parametrize(("soc", "model", "arch"), [("sm8350", 30, 68), ("sm8450", 36, 69)])
def test_halves_are_for_chips_that_have_them(soc: str, model: int, arch: int) -> None:
    context = make_context()
    text = GRAPH.format(soc=soc, model=model, arch=arch)
    module = Parser(context, text).parse_module()
    if arch >= 69:
        EncodeQnn().apply(context, module)
        module.verify()
        return
    with pytest.raises(CompileError) as caught:
        EncodeQnn().apply(context, module)
    assert caught.value.code == "MLC-R008"
    assert caught.value.exit_code == 3
    assert "from v69 on, this is v68" in caught.value.message


SUM = """func.func @f(%x: tensor<4x8xf32> {mllm.name = "x"}, %y: tensor<4x8xf32> {mllm.name = "y"})
    -> (tensor<4x8xf32> {mllm.name = "z"}) attributes {qnn.soc = #qnn.soc<"sm8650", 57, 75>} {
  %c = mllm.constant dense<[0.5, -1.0, 2.0, 0.25, 1.0, 0.1, -0.3, 1.5]> : tensor<8xf32>
  %a = qnn.element_wise_multiply %x, %c : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %b = qnn.mat_mul %a, %y {transpose_in0 = false, transpose_in1 = true}
    : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32>
  %s = qnn.softmax %b {axis = 1 : i64, beta = 1.0 : f64} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %z = qnn.mat_mul %s, %x {transpose_in0 = false, transpose_in1 = false}
    : (tensor<4x4xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %z : tensor<4x8xf32>
}"""


@pytest.mark.parametrize(("bits", "element", "steps"), [(8, "ui8", 6), (16, "ui16", 12)])
def test_values_have_codes_where_the_recipe_says_so(
    bits: int, element: str, steps: int, tmp_path: Path
) -> None:
    """Beside the graph in floats, in steps of the result's codes; weights are none here."""
    recipe = tmp_path / "codes.toml"
    recipe.write_text(f"[linears]\nbits = 8\n[values]\nbits = {bits}\n")
    rng = np.random.default_rng(3)
    inputs = {name: rng.standard_normal((4, 8)).astype(np.float32) for name in "xy"}
    (tmp_path / "f").mkdir()
    np.savez(tmp_path / "f" / "0000.npz", **inputs)
    context = make_context()
    module = Parser(context, SUM).parse_module()
    want = run_function(module, "f", inputs, context.store)["z"]
    EncodeQnn(recipe=str(recipe), data=str(tmp_path)).apply(context, module)
    module.verify()
    got = run_function(module, "f", inputs, context.store)["z"]
    (graph,) = graphs(module)
    ops = list(block_of(graph).ops)
    products = [op for op in ops if isinstance(op, qnn.MatMulOp)]
    assert [str(op.y.type) for op in products] == [
        f"tensor<4x4x{element}>",
        f"tensor<4x8x{element}>",
    ]
    casts = sum(isinstance(op, qnn.CastOp) for op in ops)
    assert casts == (1 if bits == 8 else 0), "what a product of 8 bits gives becomes halves before"
    last = products[-1].scale
    assert last is not None
    assert np.abs(got - want).max() < steps * last.value.data
    (softmax,) = (op for op in ops if isinstance(op, qnn.SoftmaxOp))
    assert softmax.scale is not None
    assert (softmax.scale.value.data, softmax.zero) == (2.0**-bits, 0)


def test_a_recipe_with_values_needs_samples(tmp_path: Path) -> None:
    recipe = tmp_path / "codes.toml"
    recipe.write_text("[linears]\nbits = 8\n[values]\nbits = 8\n")
    context = make_context()
    module = Parser(context, SUM).parse_module()
    with pytest.raises(CompileError) as caught:
        EncodeQnn(recipe=str(recipe), data="").apply(context, module)
    assert caught.value.code == "MLC-Q002"
