"""What `fold-constants` does with weights, which the IR names but does not hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from mllm_compiler.dialects import make_context
from mllm_compiler.dialects.locations import location_name
from mllm_compiler.dialects.mllm import WeightOp
from mllm_compiler.importer import Imported, import_model
from mllm_compiler.passes import fold_constants
from mllm_compiler.passes.fold_constants import FoldConstants
from mllm_compiler.passes.infer_shapes import InferShapes
from mllm_compiler.reference import run_function
from tests.importer import onnx_models as models


def folded(model: onnx.ModelProto, folder: Path) -> Imported:
    imported = import_model(models.save(model, folder))
    context = make_context(imported.store)
    InferShapes().apply(context, imported.module)
    FoldConstants().apply(context, imported.module)
    imported.module.verify()
    return imported


def names(module: ModuleOp) -> list[str]:
    function = next(f for f in module.ops if isinstance(f, FuncOp))
    return [op.name for op in function.body.block.ops]


def model_with(text: str, **tensors: np.ndarray) -> onnx.ModelProto:
    model = models.model_of(text)
    for name, array in tensors.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def test_a_computed_weight_goes_to_the_store(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    half = rng.standard_normal((64, 32)).astype(np.float16)
    text = """
    g (float[1, 64] x) => (float[1, 32] y) { [widen] w = Cast<to = 1>(h) y = MatMul(x, w) }
    """
    imported = folded(model_with(text, h=half), tmp_path)
    assert names(imported.module) == ["mllm.weight", "onnx.MatMul", "func.return"]
    weight = next(op for op in imported.module.walk() if isinstance(op, WeightOp))
    assert location_name(weight) == "widen"
    value = imported.store.array(weight.value.digest.data, "f32", (64, 32))
    assert np.array_equal(value, half.astype(np.float32))


def test_a_rearranged_large_weight_is_not_copied(tmp_path: Path) -> None:
    text = """
    g (float[1, 600] x) => (float[1, 500] y) { t = Transpose<perm = [1, 0]>(w) y = MatMul(x, t) }
    """
    weight = np.ones((500, 600), np.float32)
    assert weight.nbytes > fold_constants.SMALL_BYTES
    imported = folded(model_with(text, w=weight), tmp_path)
    assert "onnx.Transpose" in names(imported.module)
    assert imported.store.folder is None


def test_a_constant_that_repeats_itself_does_not_grow_into_gigabytes(tmp_path: Path) -> None:
    text = """
    g (float[1] x) => (float[30000, 30000] y) {
      z = ConstantOfShape(s)
      y = Add(x, z)
    }
    """
    imported = folded(model_with(text, s=np.array([30000, 30000])), tmp_path)
    assert "onnx.ConstantOfShape" in names(imported.module)


def test_results_stay_what_they_were(tmp_path: Path) -> None:
    text = """
    g (float[2, 8] x) => (float[2, 4] y) {
      two = Constant<value_float = 2.0>()
      half = Reciprocal(two)
      scaled = Mul(w, half)
      turned = Transpose<perm = [1, 0]>(scaled)
      h = MatMul(x, turned)
      s = Shape(h)
      c = Cast<to = 1>(s)
      m = ReduceMax<keepdims = 0>(c)
      y = Div(h, m)
    }
    """
    rng = np.random.default_rng(1)
    model = model_with(text, w=rng.standard_normal((4, 8)).astype(np.float32))
    imported = folded(model, tmp_path)
    assert [n for n in names(imported.module) if n.startswith("onnx.")] == [
        "onnx.MatMul",
        "onnx.Div",
    ]
    feeds = {"x": rng.standard_normal((2, 8)).astype(np.float32)}
    expected = ort.InferenceSession(model.SerializeToString()).run(None, feeds)[0]
    results = run_function(imported.module, "model", feeds, imported.store)
    np.testing.assert_allclose(results["y"], expected, rtol=1e-6)


def test_codes_stay_codes_and_a_bias_of_sums_becomes_numbers(tmp_path: Path) -> None:
    text = """
    g (float[1, 8] x) => (float[1, 8] y) {
        w = DequantizeLinear<axis = 1>(codes, scale)
        b = DequantizeLinear<axis = 0>(sums, scale)
        z = MatMul(x, w)
        y = Add(z, b)
    }
    """
    codes, sums = np.arange(64, dtype=np.int8).reshape(8, 8), np.arange(8, dtype=np.int32)
    model = model_with(text, codes=codes, sums=sums, scale=np.full(8, 0.5, np.float32))
    imported = folded(model, tmp_path)
    assert names(imported.module).count("onnx.DequantizeLinear") == 1
    x = np.ones((1, 8), np.float32)
    result = run_function(imported.module, "model", {"x": x}, imported.store)["y"]
    np.testing.assert_array_equal(result, [codes.sum(0) * 0.5 + sums * 0.5])
