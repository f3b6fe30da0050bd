"""`mllmc reduce`: what is left is known beforehand, because the failure was planted."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from mllm_compiler.cli.main import run
from models.build import built
from tests.importer.onnx_models import save, weighted, write

Captured = pytest.CaptureFixture[str]


def planted(folder: Path, recipe: str = "tiny-llama", operator: str = "Hardmax") -> Path:
    """A recipe's first graph with an operator that the C runtime lacks in the middle of it."""
    source = min(built(recipe).glob("*.onnx"))
    model = onnx.load(source, load_external_data=False)
    nodes = model.graph.node
    at, node = next(
        (i, n) for i, n in enumerate(nodes) if i > len(nodes) // 2 and n.op_type == "Add"
    )
    result = node.output[0]
    node.output[0] = f"{result}_plain"
    nodes.insert(at + 1, helper.make_node(operator, [node.output[0]], [result], name="planted"))
    for data in source.parent.glob("*.data"):
        shutil.copyfile(data, folder / data.name)  # a second name would keep onnx.load from it
    return save(model, folder, source.name)


def left(path: Path) -> list[str]:
    onnx.checker.check_model(str(path), full_check=True)
    return [node.op_type for node in onnx.load(path).graph.node]


def test_an_operator_without_a_home_is_all_that_is_left(tmp_path: Path, capsys: Captured) -> None:
    source, out = planted(tmp_path), tmp_path / "out.onnx"
    assert run(["reduce", str(source), "--expect", "MLC-R001", "-o", str(out), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert left(out) == ["Hardmax"]
    assert facts["nodes_before"] > 400
    assert facts["nodes_after"] == 1
    assert facts["tries"] < 12
    assert facts["failure"].startswith("planted: error: 'onnx.Hardmax' has no home on 'c'")
    assert {p.name for p in tmp_path.iterdir()} == {source.name, "out.onnx"}


def test_one_model_gives_one_answer(tmp_path: Path) -> None:
    source = planted(tmp_path, "tiny-vit")
    for name in ("a.onnx", "b.onnx"):
        words = ["reduce", str(source), "--expect", "! grep -aq Hardmax", "-o"]
        assert run([*words, str(tmp_path / name)]) == 0
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert left(tmp_path / "a.onnx") == ["Hardmax"]


PROGRAM = """
import onnx, sys
model = onnx.load(sys.argv[1])
nodes = model.graph.node
shares = {n.output[0] for n in nodes if n.op_type == "Softmax"}
sys.exit(7 * any(n.op_type == "MatMul" and n.input[0] in shares for n in nodes))
"""


def test_a_command_decides_what_fails(tmp_path: Path, capsys: Captured) -> None:
    """Scores times values: of a whole vision encoder two nodes are left."""
    source, out = min(built("tiny-vit").glob("*.onnx")), tmp_path / "out.onnx"
    command = f"{sys.executable} -c {shlex.quote(PROGRAM)}"
    assert run(["reduce", str(source), "--expect", command, "-o", str(out)]) == 0
    assert left(out) == ["Softmax", "MatMul"]
    assert "it still fails: status 7" in capsys.readouterr().out


def test_a_chain_that_the_failure_does_not_need_is_bypassed(tmp_path: Path) -> None:
    source = write(
        tmp_path,
        """g (float[4, 4] x) => (float[4, 4] y) {
          a = Exp(x)
          b = Relu(a)
          c = Tanh(b)
          d = Neg(c)
          y = Log(d)
        }""",
    )
    program = (
        "import onnx, sys; g = onnx.load(sys.argv[1]).graph; "
        "made = {n.output[0]: n for n in g.node}; "
        "way = lambda v: made[v].op_type + way(made[v].input[0]) if v in made else ''; "
        "t = way(g.output[0].name); sys.exit(t.startswith('Log') and t.endswith('Exp'))"
    )
    words = ["--expect", f"{sys.executable} -c {shlex.quote(program)}", "-o"]
    assert run(["reduce", str(source), *words, str(tmp_path / "out.onnx")]) == 0
    assert left(tmp_path / "out.onnx") == ["Exp", "Log"]


def test_a_graph_inside_a_node_is_lifted_out(tmp_path: Path) -> None:
    source = write(
        tmp_path,
        """g (bool c, float[4, 4] x) => (float[4, 4] y) {
          a = Exp(x)
          y = If (c) <
            then_branch = t () => (float[4, 4] u) { v = Neg(a) u = Hardmax(v) },
            else_branch = e () => (float[4, 4] w) { w = Identity(a) }
          >
        }""",
    )
    words = ["--expect", "MLC-R001", "--match", "Hardmax|If", "-o", str(tmp_path / "out.onnx")]
    assert run(["reduce", str(source), *words]) == 0
    assert left(tmp_path / "out.onnx") in (["Hardmax"], ["If"])
    words = ["--expect", "! grep -aq Hardmax", "-o", str(tmp_path / "inner.onnx")]
    assert run(["reduce", str(source), *words]) == 0
    assert left(tmp_path / "inner.onnx") == ["Hardmax"]


def test_a_call_of_a_function_becomes_its_body(tmp_path: Path) -> None:
    header = '<ir_version: 10, opset_import: ["" : 17, "own" : 1]>\n'
    text = """g (float[4, 4] x) => (float[4, 4] y) { a = Exp(x) y = own.f(a) }
      <domain: "own", opset_import: ["" : 17]> f (p) => (q) { r = Neg(p) q = Hardmax(r) }"""
    source, out = write(tmp_path, text, header=header), tmp_path / "out.onnx"
    assert run(["reduce", str(source), "--expect", "MLC-R001", "-o", str(out)]) == 0
    assert left(out) == ["Hardmax"]
    assert not onnx.load(out).functions


def test_a_value_that_only_we_know_the_type_of_becomes_an_input(tmp_path: Path) -> None:
    """The standard has no shape function for an operator of ONNX Runtime."""
    source, out = (
        write(
            tmp_path,
            "g (float[4, 4] x) => (float[4, 4] y) { a = com.microsoft.QuickGelu(x) "
            "b = Hardmax(a) y = Neg(b) }",
        ),
        tmp_path / "out.onnx",
    )
    assert run(["reduce", str(source), "--expect", "! grep -aq Hardmax", "-o", str(out)]) == 0
    assert left(out) == ["Hardmax"]


def test_shapes_that_contradict_each_other_are_cut_out_with_their_weight(tmp_path: Path) -> None:
    model = weighted()
    wrong = numpy_helper.from_array(np.ones((9, 5), np.float32), "wrong")
    model.graph.initializer.append(wrong)
    del model.graph.output[:]
    model.graph.node.append(helper.make_node("MatMul", ["y", "wrong"], ["z"], name="bad"))
    model.graph.output.append(helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, None))
    source, out = save(model, tmp_path), tmp_path / "out.onnx"
    assert run(["reduce", str(source), "--expect", "MLC-I015", "-o", str(out)]) == 0
    small = onnx.load(out)
    assert [node.name for node in small.graph.node] == ["bad"]
    assert not small.graph.initializer


def test_large_weights_are_not_read_and_what_is_left_is_one_file(tmp_path: Path) -> None:
    """80 MB of weights, of which a failing product needs 40: they become zeros, or inputs."""
    rows = 3200
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        f"g (float[2, {rows}] x) => (float[2, {rows}] y) "
        "{ a = MatMul(x, w) [bad] b = Hardmax(a) y = MatMul(b, v) }"
    )
    for name in ("w", "v"):
        data = np.full((rows, rows), 2.0, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(data, name))
    source, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    onnx.save(model, source, save_as_external_data=True, location="m.data")
    command = "! (grep -aq Hardmax {} && grep -aq MatMul {})"
    assert run(["reduce", str(source), "--expect", command, "-o", str(out)]) == 0
    assert sorted(left(out)) == ["Hardmax", "MatMul"]
    assert out.stat().st_size < 1000


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["--expect", "MLC-R002"], 1, "does not fail as expected: planted: error: 'onnx.Hardmax'"),
        (["--expect", "MLC-R001", "--match", "Selu"], 1, "[MLC-U011]"),
        (["--expect", "MLC-R001", "--target", "numpy"], 1, "does not fail as expected: it compil"),
        (["--expect", "true"], 1, "does not fail as expected: status 0 [MLC-U011]"),
        (["--expect", "no-such-command"], 1, "does not fail as expected: status 127"),
        (["--expect", "sleep 9; false", "--timeout", "0.3"], 1, "it took over 0.3 s [MLC-U011]"),
        (["--expect", "MLC-R999"], 2, "no error has the code MLC-R999 [MLC-U001]"),
        (["--expect", "false", "--match", "("], 2, "not a regular expression"),
        (["--expect", "false", "--target", "npu"], 2, "[MLC-U002]"),
        ([], 2, "[MLC-U001]"),
    ],
)
def test_what_is_no_failure_is_one_located_line(
    words: list[str], status: int, text: str, tmp_path: Path, capsys: Captured
) -> None:
    source, start = planted(tmp_path, "tiny-vit"), time.monotonic()
    out = tmp_path / "out.onnx"
    assert run(["reduce", str(source), "-o", str(out), *words]) == status
    (line,) = capsys.readouterr().err.splitlines()
    assert text in line
    assert not out.exists()
    assert time.monotonic() - start < 60


def test_a_file_outside_of_the_model_s_folder_is_not_read(tmp_path: Path) -> None:
    """The failure is that the model reaches out; what is left still does, and holds no secret."""
    (tmp_path / "secret").write_bytes(b"s" * 8192)
    folder = tmp_path / "model"
    folder.mkdir()
    model = weighted()
    for tensor in model.graph.initializer[:1]:
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="../secret")
    source, out = save(model, folder), folder / "out.onnx"
    assert run(["reduce", str(source), "--expect", "MLC-I005", "-o", str(out)]) == 0
    assert b"ssss" not in out.read_bytes()
    assert b"../secret" in out.read_bytes()


def test_a_model_of_several_graphs_is_searched_graph_by_graph(
    tmp_path: Path, capsys: Captured
) -> None:
    out = tmp_path / "out.onnx"
    words = ["reduce", str(built("tiny-vlm")), "--expect", "! grep -aq Cos {}", "-o", str(out)]
    assert run(words) == 0
    assert left(out) == ["Cos"]
    assert "decoder" in capsys.readouterr().out
    assert run([*words, "--graph", "vision"]) == 1
    assert run([*words, "--graph", "visoin"]) == 2


def test_what_was_found_before_an_interrupt_is_kept(tmp_path: Path) -> None:
    source, out, log = planted(tmp_path), tmp_path / "out.onnx", tmp_path / "log"
    count = f"echo >> {log}; [ $(wc -l < {log}) -lt 6 ] || kill -INT $PPID; ! grep -aq Hardmax"
    assert run(["reduce", str(source), "--expect", count, "-o", str(out)]) == 130
    assert "Hardmax" in left(out)
    assert len(left(out)) < 400
    assert {p.name for p in tmp_path.iterdir()} == {source.name, "out.onnx", "log"}


@pytest.mark.slow
def test_a_real_model_with_one_bad_node_is_reduced_to_it(tmp_path: Path, capsys: Captured) -> None:
    """538 MB of weights stay where they are: what is left is a few hundred bytes."""
    source, out = planted(tmp_path, "smollm2-135m"), tmp_path / "out.onnx"
    assert run(["reduce", str(source), "--expect", "MLC-R001", "-o", str(out), "--json"]) == 0
    assert left(out) == ["Hardmax"]
    assert json.loads(capsys.readouterr().out)["nodes_before"] > 5000
    assert out.stat().st_size < 1000
