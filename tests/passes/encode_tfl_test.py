"""`encode-tfl`: which operators compute on codes, and what the graph then gives.

The truth is the graph on reals (each result within the steps of its codes), and NumPy's ranges.
Whole models beside LiteRT: tests/vendor/tflite_test.py.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from mllm_compiler.dialects import make_context, tfl
from mllm_compiler.dialects.tfl import TflOp
from mllm_compiler.dialects.types import element_of
from mllm_compiler.errors import CompileError
from mllm_compiler.pass_run import run_passes
from mllm_compiler.passes.encode_tfl import EncodeTfl
from mllm_compiler.pipelines import pass_class
from mllm_compiler.reference import Array, run_function
from mllm_compiler.weights import WeightStore

RNG = np.random.default_rng(4)
PRODUCT = """func.func @f(%x: tensor<3x8xf32> {mllm.name = "x"})
    -> (tensor<3x4xf32> {mllm.name = "y"}) {
  %w = mllm.weight #mllm.blob<"WEIGHT", f32, [4, 8]> : tensor<4x8xf32>
  %b = mllm.constant dense<[0.5, -1.0, 0.0, 2.0]> : tensor<4xf32>
  %y = mllm.linear %x, %w, %b : (tensor<3x8xf32>, tensor<4x8xf32>, tensor<4xf32>) -> tensor<3x4xf32>
  func.return %y : tensor<3x4xf32>
}"""
ISLAND = """func.func @f(%x: tensor<3x8xf32> {mllm.name = "x"})
    -> (tensor<3x8xf32> {mllm.name = "y"}) {
  %one = mllm.constant dense<1.5> : tensor<f32>
  %a = tfl.add %x, %x {fused_activation_function = "NONE"}
    : (tensor<3x8xf32>, tensor<3x8xf32>) -> tensor<3x8xf32>
  %d = tfl.div %a, %one {fused_activation_function = "NONE"}
    : (tensor<3x8xf32>, tensor<f32>) -> tensor<3x8xf32>
  %c = tfl.cos %d : (tensor<3x8xf32>) -> tensor<3x8xf32>
  %y = tfl.mul %c, %one {fused_activation_function = "NONE"}
    : (tensor<3x8xf32>, tensor<f32>) -> tensor<3x8xf32>
  func.return %y : tensor<3x8xf32>
}"""
NORM = """func.func @f(%x: tensor<3x8xf32> {mllm.name = "x"})
    -> (tensor<3x8xf32> {mllm.name = "y"}) {
  %w = mllm.constant dense<[1.0, 2.0, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0]> : tensor<8xf32>
  %n = mllm.rms_norm %x, %w {epsilon = 1.0e-05 : f64}
    : (tensor<3x8xf32>, tensor<8xf32>) -> tensor<3x8xf32>
  %y = mllm.binary add %n, %x : (tensor<3x8xf32>, tensor<3x8xf32>) -> tensor<3x8xf32>
  func.return %y : tensor<3x8xf32>
}"""
CLASS = """func.func @f(%x: tensor<1x3x4xf32> {mllm.name = "x"})
    -> (tensor<1x4x4xf32> {mllm.name = "y"}) {
  %c = mllm.constant dense<[[[0.25, -3.0, 0.5, 1.0]]]> : tensor<1x1x4xf32>
  %s = tfl.softmax %x {beta = 1.0 : f64} : (tensor<1x3x4xf32>) -> tensor<1x3x4xf32>
  %y = tfl.concatenation %c, %s {axis = 1, fused_activation_function = "NONE"}
    : (tensor<1x1x4xf32>, tensor<1x3x4xf32>) -> tensor<1x4x4xf32>
  func.return %y : tensor<1x4x4xf32>
}"""


def encoded(
    text: str, folder: Path, x: Array, recipe: str
) -> tuple[ModuleOp, ModuleOp, WeightStore]:
    """A module before and after, calibrated on one sample of the graph `f`."""
    store = WeightStore()
    digest = store.add(RNG.standard_normal((4, 8)).astype(np.float32))
    context = make_context(store)
    module = Parser(context, text.replace("WEIGHT", digest)).parse_module()
    (folder / "recipe.toml").write_text(recipe)
    (folder / "f").mkdir()
    np.savez(folder / "f" / "0.npz", allow_pickle=False, x=x)
    options = {"recipe": str(folder / "recipe.toml")}
    run_passes(
        module, [pass_class("quantise-linears")(**options), pass_class("lower-to-tfl")()], context
    )
    before = module.clone()
    run_passes(module, [EncodeTfl(**options, data=str(folder))], context)
    return before, module, store


def forms(module: ModuleOp) -> Counter[str]:
    """How many operators there are, by name and element type."""
    made = [op for op in module.walk() if isinstance(op, TflOp)]
    return Counter(f"{op.name[4:]}:{element_of(op.results[0])}" for op in made)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("values", [8, 16])
def test_a_product_is_one_of_codes(bits: int, values: int, tmp_path: Path) -> None:
    """The bias has steps of the row's scale times that of what is read."""
    x = RNG.standard_normal((3, 8)).astype(np.float32)
    recipe = f"[linears]\nbits = {bits}\n[values]\nbits = {values}\n"
    before, module, store = encoded(PRODUCT, tmp_path, x, recipe)
    wide = "i32" if values == 8 else "i64"
    assert forms(module) == {
        f"quantize:i{values}": 1,
        f"pseudo_qconst:i{bits}": 1,
        f"pseudo_qconst:{wide}": 1,
        f"fully_connected:i{values}": 1,
        "dequantize:f32": 1,
    }
    real, found = (run_function(m, "f", {"x": x}, store)["y"] for m in (before, module))
    product = next(op for op in module.walk() if isinstance(op, tfl.FullyConnectedOp))
    assert product.scale is not None
    step = product.scale.value.data
    reach = real.max() - min(real.min(), 0) if values == 8 else np.abs(real).max()
    assert step == pytest.approx(reach / (255 if values == 8 else 32767), rel=1e-5)
    steps = 2 if values == 8 else 40
    assert np.abs(found - real).max() < steps * step
    assert np.abs(found - real).max() > 0


def test_what_has_no_form_on_codes_computes_on_reals(tmp_path: Path) -> None:
    """A quotient and a cosine, one behind the other, are one island."""
    x = RNG.standard_normal((3, 8)).astype(np.float32)
    before, module, store = encoded(
        ISLAND, tmp_path, x, "[linears]\nbits = 8\n[values]\nbits = 8\n"
    )
    assert forms(module) == {
        "quantize:i8": 2,
        "add:i8": 1,
        "dequantize:f32": 2,
        "div:f32": 1,
        "cos:f32": 1,
        "pseudo_qconst:i8": 1,
        "mul:i8": 1,
    }
    real, found = (run_function(m, "f", {"x": x}, store)["y"] for m in (before, module))
    assert 0 < np.abs(found - real).max() < 0.05


def test_a_fixed_encoding_is_read_by_another_where_values_join(tmp_path: Path) -> None:
    x = RNG.standard_normal((1, 3, 4)).astype(np.float32)
    before, module, store = encoded(CLASS, tmp_path, x, "[linears]\nbits = 8\n[values]\nbits = 8\n")
    soft = next(op for op in module.walk() if isinstance(op, tfl.SoftmaxOp))
    assert (soft.scale.value.data, soft.zero_point.value.data) == (1 / 256, -128)
    assert forms(module)["quantize:i8"] == 2
    real, found = (run_function(m, "f", {"x": x}, store)["y"] for m in (before, module))
    assert np.abs(found - real).max() < 4 / 255


@pytest.mark.parametrize(("keys", "real"), [("", 0), ("real_norms = true\n", 6)])
def test_a_norm_stays_real_where_the_recipe_says_so(keys: str, real: int, tmp_path: Path) -> None:
    """Squares, their mean, the root and the gain: all but what a product or a sum reads."""
    x = RNG.standard_normal((3, 8)).astype(np.float32)
    recipe = f"[linears]\nbits = 8\n[values]\nbits = 8\n{keys}"
    _, module, _ = encoded(NORM, tmp_path, x, recipe)
    within = {"mean", "mul", "add", "rsqrt"}
    found = forms(module)
    assert sum(n for f, n in found.items() if f in {f"{name}:f32" for name in within}) == real
    assert found["add:i8"] == (1 if real else 2)


def test_a_recipe_without_values_changes_nothing(tmp_path: Path) -> None:
    x = RNG.standard_normal((3, 8)).astype(np.float32)
    before, module, _ = encoded(PRODUCT, tmp_path, x, "[linears]\nbits = 8\n")
    assert str(before) == str(module)


def test_a_graph_without_samples_is_named(tmp_path: Path) -> None:
    x = RNG.standard_normal((3, 8)).astype(np.float32)
    text = PRODUCT.replace("@f", "@g")
    with pytest.raises(CompileError) as fault:
        encoded(text, tmp_path, x, "[linears]\nbits = 8\n[values]\nbits = 8\n")
    assert (fault.value.code, fault.value.location) == ("MLC-Q002", "g")
