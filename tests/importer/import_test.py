"""What an ONNX model becomes: names, types, weights, functions, graphs inside nodes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from xdsl.dialects.func import FuncOp

from mllm_compiler.dialects.locations import location_name
from mllm_compiler.dialects.mllm import ConstantOp, WeightOp
from mllm_compiler.dialects.onnx import CustomOp
from mllm_compiler.dialects.onnx_attributes import array_of_dense
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.errors import CompileError
from mllm_compiler.importer import Imported, import_model
from mllm_compiler.importer.protobuf import without_tensors
from mllm_compiler.reference import run_function
from tests.importer import onnx_models as models


def ops(imported: Imported) -> list[OnnxOp]:
    return [op for op in imported.module.walk() if isinstance(op, OnnxOp)]


def weights(imported: Imported) -> dict[str, WeightOp]:
    found = [op for op in imported.module.walk() if isinstance(op, WeightOp)]
    return {op.weight_name.data: op for op in found if op.weight_name is not None}


def test_names_dims_and_locations_stay(tmp_path: Path) -> None:
    imported = import_model(models.save(models.weighted(), tmp_path))
    imported.module.verify()
    function = next(f for f in imported.module.ops if isinstance(f, FuncOp))
    text = str(function)
    assert 'tensor<?x64xf32, #mllm.dims<"batch_size", "64">> {mllm.name = "x"}' in text
    assert 'onnx.opset = {"" = 17 : i64, com.microsoft = 1 : i64}' in text
    assert [location_name(op) for op in ops(imported)] == ["fc_MatMul", "fc_Add"]
    assert ops(imported)[0].results[0].name_hint == "h"


def test_a_node_without_a_name_gets_its_operator_and_position(tmp_path: Path) -> None:
    text = "g (float[2] x) => (float[2] y) { h = Abs(x) y = Neg(h) }"
    imported = import_model(models.write(tmp_path, text))
    assert [location_name(op) for op in ops(imported)] == ["Abs_0", "Neg_1"]


def test_unnamed_extents_of_inputs_get_symbols(tmp_path: Path) -> None:
    text = "g (float[?, 3] x) => (float[?, 3] y) { y = Abs(x) }"
    assert '#mllm.dims<"x_dim_0", "3">' in str(import_model(models.write(tmp_path, text)).module)


@pytest.mark.parametrize("form", ["raw", "typed", "external"])
def test_a_weight_is_mapped_from_wherever_it_lies(form: str, tmp_path: Path) -> None:
    model = models.weighted()
    expected = numpy_helper.to_array(model.graph.initializer[0])
    if form == "typed":
        tensor = helper.make_tensor("w", TensorProto.FLOAT, expected.shape, expected.reshape(-1))
        model.graph.initializer[0].CopyFrom(tensor)
    path = (
        models.with_external_data(tmp_path) if form == "external" else models.save(model, tmp_path)
    )
    imported = import_model(path)
    blob = weights(imported)["w"].value
    assert blob.digest.data == "sha256:" + hashlib.sha256(expected.tobytes()).hexdigest()
    assert np.array_equal(imported.store.array(blob.digest.data, "f32", blob.dims), expected)
    # Nothing was copied: no pass has made a sidecar.
    assert imported.store.folder is None


def test_a_large_tensor_never_reaches_the_parser(tmp_path: Path) -> None:
    path = models.save(models.weighted(rows=512, columns=256), tmp_path)
    stripped = without_tensors(path)
    assert len(stripped) < 2000 < path.stat().st_size
    model = onnx.ModelProto.FromString(stripped)
    onnx.external_data_helper.load_external_data_for_model(model, str(tmp_path))
    assert numpy_helper.to_array(model.graph.initializer[0]).shape == (512, 256)


def test_a_model_without_large_tensors_is_read_as_it_is(tmp_path: Path) -> None:
    model = models.model_of("g (float[2] x) => (float[2] y) { y = Abs(x) }")
    path = models.save(model, tmp_path)
    assert without_tensors(path) == path.read_bytes()


def test_equal_weights_are_one_blob(tmp_path: Path) -> None:
    model = models.weighted()
    again = model.graph.initializer.add()
    again.CopyFrom(model.graph.initializer[0])
    again.name = "v"
    found = weights(import_model(models.save(model, tmp_path)))
    assert found["w"].value == found["v"].value


DTYPES = [
    np.float32, np.float64, np.float16, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16,
    np.uint32, np.uint64, np.bool_, np.complex64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2, ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.float4_e2m1fn,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_a_small_tensor_of_every_dtype_stands_in_place(
    dtype: type[np.generic], tmp_path: Path
) -> None:
    array = np.array([0, 1, 1, 0, 1], np.float32).astype(dtype)
    model = models.model_of("g (float[1] x) => (float[1] x) { }")
    model.graph.initializer.append(numpy_helper.from_array(array, "w"))
    imported = import_model(models.save(model, tmp_path))
    constant = next(op for op in imported.module.walk() if isinstance(op, ConstantOp))
    assert np.array_equal(array_of_dense(constant.value), array)


@pytest.mark.parametrize("typed", [False, True])
def test_signed_integers_of_typed_fields(typed: bool, tmp_path: Path) -> None:
    numbers = [-1, 2**40, -(2**62)]
    tensor = helper.make_tensor("w", TensorProto.INT64, [3], numbers)
    if not typed:
        tensor = numpy_helper.from_array(np.array(numbers), "w")
    model = models.model_of("g (float[1] x) => (float[1] x) { }")
    model.graph.initializer.append(tensor)
    text = str(import_model(models.save(model, tmp_path)).module)
    assert f"dense<[-1, {2**40}, -{2**62}]>" in text


def test_an_absent_operand_keeps_the_positions(tmp_path: Path) -> None:
    text = "g (float[2] x, float m) => (float[2] y) { y = Clip(x, , m) }"
    (clip,) = ops(import_model(models.write(tmp_path, text)))
    assert clip.inputs[1] is None
    assert clip.inputs[2] is not None


FUNCTION = """
g (float[2] x) => (float[2] y) { [call] y = local.twice(x) }
<domain: "local", opset_import: ["" : 17]> twice (a) => (b) { [sum] b = Add(a, a) }
"""


def test_functions_are_inlined(tmp_path: Path) -> None:
    header = '<ir_version: 8, opset_import: ["" : 17, "local" : 1]>\n'
    (add,) = ops(import_model(models.write(tmp_path, FUNCTION, header=header)))
    assert add.name == "onnx.Add"
    assert add.operands[0] is add.operands[1]


def test_functions_that_stand_for_many_nodes(tmp_path: Path) -> None:
    """Twelve functions that call the next one twice: 2^12 nodes, whose names all clash."""
    calls = "".join(
        f'<domain: "local", opset_import: ["" : 17, "local" : 1]>\n'
        f"f{i} (a) => (b) {{ t = local.f{i + 1} (a) b = local.f{i + 1} (t) }}\n"
        for i in range(12)
    )
    text = "g (float[2] x) => (float[2] y) { y = local.f0 (x) }\n" + calls
    text += '<domain: "local", opset_import: ["" : 17]> f12 (a) => (b) { b = Neg (a) }'
    header = '<ir_version: 8, opset_import: ["" : 17, "local" : 1]>\n'
    assert len(ops(import_model(models.write(tmp_path, text, header=header)))) == 4096


def test_nodes_are_put_in_order(tmp_path: Path) -> None:
    text = "g (float[2] x) => (float[2] y) { y = Neg(h) h = Abs(x) }"
    assert [op.name for op in ops(import_model(models.write(tmp_path, text)))] == [
        "onnx.Abs",
        "onnx.Neg",
    ]


def test_an_unknown_domain_is_kept(tmp_path: Path) -> None:
    text = "g (float[2] x) => (float[2] y) { [odd] y = acme.Frob <gain = 2.0> (x) }"
    header = '<ir_version: 8, opset_import: ["" : 17, "acme" : 1]>\n'
    imported = import_model(models.write(tmp_path, text, header=header))
    imported.module.verify()
    (op,) = [o for o in imported.module.walk() if isinstance(o, CustomOp)]
    assert op.op_type.data == "Frob"
    with pytest.raises(CompileError, match=r"odd: error: operator 'acme\.Frob'"):
        run_function(imported.module, "model", {"x": np.zeros(2, np.float32)}, imported.store)


def test_operators_of_onnxruntime_without_their_domain(tmp_path: Path) -> None:
    text = (
        "g (float[2,4] x, float[4] s) => (float[2,4] y) { y = SimplifiedLayerNormalization(x,s) }"
    )
    (op,) = ops(import_model(models.write(tmp_path, text)))
    assert op.name == "onnx.microsoft.SimplifiedLayerNormalization"


def test_strings_stay_text(tmp_path: Path) -> None:
    model = models.model_of("g (float[1] x) => (float[1] x) { }")
    model.graph.initializer.append(helper.make_tensor("s", TensorProto.STRING, [2], [b"a", "ü"]))
    imported = import_model(models.save(model, tmp_path))
    imported.module.verify()
    assert '#onnx.strings<[2], ["a", "' in str(imported.module)


NESTED = """
g (float[2] x, bool c, bool d) => (float[2] y) {
  h = Abs(x)
  y = If (c) <
    then_branch = a () => (float[2] t) {
      t = If (d) <
        then_branch = b () => (float[2] u) { u = Add(h, w) },
        else_branch = e () => (float[2] v) { v = Identity(h) }
      >
    },
    else_branch = f () => (float[2] z) { z = Neg(h) }
  >
}
"""


@pytest.mark.parametrize("c", [False, True])
@pytest.mark.parametrize("d", [False, True])
def test_graphs_inside_nodes_see_the_values_around_them(c: bool, d: bool, tmp_path: Path) -> None:
    model = models.model_of(NESTED)
    model.graph.initializer.append(numpy_helper.from_array(np.array([3, 4], np.float32), "w"))
    path = models.save(model, tmp_path)
    imported = import_model(path)
    imported.module.verify()
    feeds = {"x": np.array([-1, 2], np.float32), "c": np.array(c), "d": np.array(d)}
    expected = ort.InferenceSession(str(path)).run(None, feeds)[0]
    results = run_function(imported.module, "model", feeds, imported.store)
    assert np.array_equal(results["y"], expected)


def test_the_same_model_gives_the_same_module(tmp_path: Path) -> None:
    path = models.save(models.weighted(), tmp_path)
    assert str(import_model(path).module) == str(import_model(path).module)


def test_simplify_without_onnxsim_is_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxsim", None)
    path = models.save(models.weighted(), tmp_path)
    with pytest.raises(CompileError, match="MLC-I030"):
        import_model(path, simplify=True)
