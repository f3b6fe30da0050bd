"""Whatever is wrong with a model is one located line with a code, and nothing is written."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from mllm_compiler.errors import CompileError, error_codes
from mllm_compiler.importer import import_model
from tests.importer import onnx_models as models

Break = Callable[[Path], Path]


def not_a_protobuf(folder: Path) -> Path:
    (folder / "m.onnx").write_text("This is a note, not a model.\n")
    return folder / "m.onnx"


def picture(folder: Path) -> Path:
    (folder / "m.onnx").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(300))
    return folder / "m.onnx"


def lfs_pointer(folder: Path) -> Path:
    (folder / "m.onnx").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\n")
    return folder / "m.onnx"


def empty(folder: Path) -> Path:
    (folder / "m.onnx").write_bytes(b"")
    return folder / "m.onnx"


def no_graph(folder: Path) -> Path:
    return models.save(onnx.ModelProto(ir_version=8), folder)


def truncated(folder: Path) -> Path:
    path = models.save(models.weighted(), folder)
    path.write_bytes(path.read_bytes()[:-1000])
    return path


def truncated_in_external_entries(folder: Path) -> Path:
    path = models.with_external_data(folder)
    path.write_bytes(path.read_bytes()[:-3])
    return path


def absent(folder: Path) -> Path:
    return folder / "absent.onnx"


def folder_without_model(folder: Path) -> Path:
    return folder


def external_missing(folder: Path) -> Path:
    path = models.with_external_data(folder)
    (folder / "model.data").unlink()
    return path


def external_above(folder: Path) -> Path:
    path = models.with_external_data(folder)
    models.redirected(path, "../model.data")
    return path


def external_absolute(folder: Path) -> Path:
    path = models.with_external_data(folder)
    models.redirected(path, str(folder / "model.data"))
    return path


def external_link(folder: Path) -> Path:
    inside = folder / "inside"
    inside.mkdir()
    path = models.with_external_data(inside)
    (inside / "model.data").rename(folder / "outside.data")
    os.symlink(folder / "outside.data", inside / "model.data")
    return path


def external_short(folder: Path) -> Path:
    path = models.with_external_data(folder)
    data = folder / "model.data"
    data.write_bytes(data.read_bytes()[:100])
    return path


def external_beyond(folder: Path) -> Path:
    path = models.with_external_data(folder)
    models.redirected(path, "model.data", offset=1 << 40)
    return path


def external_folder(folder: Path) -> Path:
    path = models.with_external_data(folder)
    (folder / "model.data").unlink()
    (folder / "model.data").mkdir()
    return path


def external_nul(folder: Path) -> Path:
    path = models.with_external_data(folder)
    models.redirected(path, "model\0.data")
    return path


def fifo(folder: Path) -> Path:
    os.mkfifo(folder / "m.onnx")
    return folder / "m.onnx"


def wrong_size(folder: Path) -> Path:
    model = models.weighted()
    model.graph.initializer[1].dims[0] = 31
    return models.save(model, folder)


def wrong_size_of_large(folder: Path) -> Path:
    model = models.weighted()
    model.graph.initializer[0].dims[0] = 63
    return models.save(model, folder)


def undefined_dtype(folder: Path) -> Path:
    model = models.weighted()
    model.graph.initializer[1].data_type = TensorProto.UNDEFINED
    return models.save(model, folder)


def newer_ir(folder: Path) -> Path:
    model = models.weighted()
    model.ir_version = 99
    return models.save(model, folder)


def newer_opset(folder: Path) -> Path:
    model = models.weighted()
    model.opset_import[0].version = 999
    return models.save(model, folder)


def defined_twice(folder: Path) -> Path:
    return models.write(
        folder, "g (float[2] x) => (float[2] y) { y = Relu(x) h = Abs(x) h = Neg(x) }"
    )


def undefined_value(folder: Path) -> Path:
    return models.write(folder, "g (float[2] x) => (float[2] y) { [a_Add] y = Add(x, bias) }")


def undefined_output(folder: Path) -> Path:
    return models.write(folder, "g (float[2] x) => (float[2] z) { y = Relu(x) }")


def cycle(folder: Path) -> Path:
    text = "g (float[2] x) => (float[2] y) { [a] h = Add(x, k) [b] k = Abs(h) y = Neg(k) }"
    return models.write(folder, text)


def recursive_function(folder: Path) -> Path:
    text = """
    g (float[2] x) => (float[2] y) { y = local.f(x) }
    <domain: "local", opset_import: ["" : 17, "local" : 1]> f (a) => (b) { b = local.f(a) }
    """
    header = '<ir_version: 8, opset_import: ["" : 17, "local" : 1]>\n'
    return models.write(folder, text, header=header)


def too_few_operands(folder: Path) -> Path:
    return models.write(folder, "g (float[2,2] x) => (float[2,2] y) { [fc_Gemm] y = Gemm(x) }")


def unknown_attribute(folder: Path) -> Path:
    return models.write(folder, "g (float[2] x) => (float[2] y) { y = Relu<axis=1>(x) }")


def missing_attribute(folder: Path) -> Path:
    return models.write(folder, "g (float[2] x) => (float[4] y) { y = Concat(x, x) }")


def wrong_kind(folder: Path) -> Path:
    text = "g (float[2] x) => (float[4] y) { y = Concat<axis=1.0>(x, x) }"
    return models.write(folder, text)


def wrong_dtype(folder: Path) -> Path:
    return models.write(folder, "g (int64[2] x) => (int64[2] y) { y = Softmax(x) }")


def mixed_dtypes(folder: Path) -> Path:
    text = "g (int64[2] x, float[2] z) => (float[2] y) { y = Add(x, z) }"
    return models.write(folder, text)


def younger_operator(folder: Path) -> Path:
    text = "g (float[2] x) => (float[2] y) { y = Mish(x) }"
    return models.write(folder, text, header='<ir_version: 8, opset_import: ["" : 13]>\n')


def deprecated_operator(folder: Path) -> Path:
    text = "g (float[1,1,2,2] x, float[4] s) => (float[1,1,4,4] y) { y = Upsample(x, s) }"
    return models.write(folder, text)


def strange_external_key(folder: Path) -> Path:
    model = models.weighted()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "offset", "many"
    return models.save(model, folder)


def reference_to_no_function(folder: Path) -> Path:
    model = models.model_of("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    attribute = helper.make_attribute("alpha", 1.0)
    attribute.ClearField("f")
    attribute.ref_attr_name = "a"
    model.graph.node[0].op_type = "Elu"
    model.graph.node[0].attribute.append(attribute)
    return models.save(model, folder)


def no_opset(folder: Path) -> Path:
    model = models.weighted()
    del model.opset_import[:]
    return models.save(model, folder)


def no_outputs(folder: Path) -> Path:
    model = models.weighted()
    del model.graph.output[:]
    return models.save(model, folder)


def empty_graph(folder: Path) -> Path:
    model = models.weighted()
    model.graph.CopyFrom(onnx.GraphProto(name="g"))
    return models.save(model, folder)


def outputs_twice(folder: Path) -> Path:
    model = models.weighted()
    model.graph.output.append(model.graph.output[0])
    return models.save(model, folder)


def initialisers_twice(folder: Path) -> Path:
    model = models.weighted()
    model.graph.initializer.append(model.graph.initializer[1])
    return models.save(model, folder)


def initialiser_and_node(folder: Path) -> Path:
    model = models.weighted()
    model.graph.initializer[1].name = "h"
    return models.save(model, folder)


def negative_input(folder: Path) -> Path:
    return models.write(folder, "g (float[2, -3] x) => (float[2, n] y) { y = Relu(x) }")


def negative_output(folder: Path) -> Path:
    return models.write(folder, "g (float[2] x) => (float[-2] y) { y = Relu(x) }")


CASES: list[tuple[Break, str, str]] = [
    (not_a_protobuf, "MLC-I001", "not an ONNX protobuf"),
    (picture, "MLC-I001", "not an ONNX protobuf"),
    (lfs_pointer, "MLC-I001", "git lfs pull"),
    (empty, "MLC-I001", "empty"),
    (no_graph, "MLC-I001", "no graph"),
    (truncated, "MLC-I002", "truncated"),
    (truncated_in_external_entries, "MLC-I002", "truncated"),
    (absent, "MLC-I003", "absent.onnx"),
    (folder_without_model, "MLC-I025", "model.toml"),
    (external_missing, "MLC-I004", "model.data"),
    (external_folder, "MLC-I004", "model.data"),
    (external_above, "MLC-I005", "../model.data"),
    (external_absolute, "MLC-I005", "outside the model's folder"),
    (external_link, "MLC-I005", "outside the model's folder"),
    (external_short, "MLC-I006", "has 100"),
    (external_beyond, "MLC-I006", "model.data"),
    (external_nul, "MLC-I007", "NUL"),
    (fifo, "MLC-I001", "not a regular file"),
    (wrong_size, "MLC-I007", "'b'"),
    (wrong_size_of_large, "MLC-I007", "'w'"),
    (undefined_dtype, "MLC-I007", "'b'"),
    (newer_ir, "MLC-I008", "IR version 99"),
    (newer_opset, "MLC-I008", "opset 999"),
    (defined_twice, "MLC-I009", "'h'"),
    (undefined_value, "MLC-I010", "a_Add uses 'bias'"),
    (undefined_output, "MLC-I010", "'z'"),
    (recursive_function, "MLC-I011", "functions"),
    (cycle, "MLC-I012", "'a', 'b'"),
    (too_few_operands, "MLC-I014", "fc_Gemm"),
    (unknown_attribute, "MLC-I014", "Relu_0: error: 'onnx.Relu': attribute 'axis'"),
    (missing_attribute, "MLC-I014", "'axis' must be there"),
    (wrong_kind, "MLC-I014", "of kind int, not float"),
    (wrong_dtype, "MLC-I014", "tensor(int64)"),
    (mixed_dtypes, "MLC-I014", "tensor(float)"),
    (younger_operator, "MLC-I014", "no such operator in opset 13"),
    (deprecated_operator, "MLC-I014", "deprecated"),
    (strange_external_key, "MLC-I013", "'many'"),
    (reference_to_no_function, "MLC-I014", "alpha"),
    (no_opset, "MLC-I013", "imports no opset"),
    (no_outputs, "MLC-I013", "no outputs"),
    (empty_graph, "MLC-I013", "no outputs"),
    (outputs_twice, "MLC-I009", "graph output 'y'"),
    (initialisers_twice, "MLC-I009", "initialiser 'b'"),
    (initialiser_and_node, "MLC-I009", "value 'h'"),
    (negative_input, "MLC-I007", "'x' is malformed: dimension 1 is -3"),
    (negative_output, "MLC-I007", "'y' is malformed: dimension 0 is -2"),
]


@pytest.mark.parametrize(("build", "code", "words"), CASES, ids=[c[0].__name__ for c in CASES])
def test_one_located_line_with_a_code(build: Break, code: str, words: str, tmp_path: Path) -> None:
    path = build(tmp_path)
    before = sorted(p for p in tmp_path.rglob("*"))
    with pytest.raises(CompileError) as caught:
        import_model(path)
    line = str(caught.value)
    assert caught.value.code == code, line
    assert words in line
    assert "\n" not in line
    assert re.fullmatch(r".+: error: .+ \[MLC-I\d{3}\] \(.+\)", line), line
    assert caught.value.exit_code == 1
    assert code in error_codes()
    assert sorted(p for p in tmp_path.rglob("*")) == before


def code_of(path: Path) -> str:
    """The code that the import of a model fails with; empty where it does not."""
    try:
        import_model(path)
    except CompileError as error:
        return error.code
    return ""


def test_every_prefix_of_a_model_is_refused(tmp_path: Path) -> None:
    whole = models.weighted(rows=16, columns=8).SerializeToString()
    path = tmp_path / "m.onnx"
    for length in range(len(whole) - 1):
        path.write_bytes(whole[:length])
        code = code_of(path)
        # A prefix that ends before the last opset lacks only that of a domain which is not used.
        assert code.startswith("MLC-I") if code else length > len(whole) - 20
