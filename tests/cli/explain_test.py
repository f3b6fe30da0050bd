"""`mllmc explain` and `mllmc doctor`."""

from __future__ import annotations

import json

import onnx
import pytest
from onnx import TensorProto, helper

from mllm_compiler.cli.main import run
from tests.cli.recipes import tiny

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize("target", ["c", "numpy"])
def test_every_operation_of_a_model_has_a_home(target: str, capsys: Captured) -> None:
    assert run(["explain", str(tiny("tiny-llama")), "--target", target, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["homeless"] == 0
    assert facts["flops_share"] == 1.0
    assert {row["home"] for row in facts["operations"]} == {target}
    assert all(row["why"] for row in facts["operations"])


def test_an_operation_without_a_home_is_told_with_status_3(
    tmp_path: object, capsys: Captured
) -> None:
    path = f"{tmp_path}/det.onnx"
    square = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 4])
    number = helper.make_tensor_value_info("y", TensorProto.FLOAT, [])
    node = helper.make_node("Det", ["x"], ["y"], name="/head/Det")
    graph = helper.make_graph([node], "g", [square], [number])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    assert run(["explain", path]) == 3
    told = capsys.readouterr().out
    assert "/head/Det: 'onnx.Det' has no home" in told
    assert "0.00 % of the floating-point operations run on c" in told
    assert run(["explain", path, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["flops_share"] == 0.0
    assert run(["compile", path, "--unsigned", "-o", f"{tmp_path}/out"]) == 3
    line = capsys.readouterr().err
    assert line.startswith("/head/Det: error: 'onnx.Det' has no home on 'c'")
    assert "[MLC-R001]" in line
    assert run(["explain", path, "--fallback", "numpy"]) == 0


@pytest.mark.parametrize("words", [["--target", "npu"], ["--fallback", "npu"]])
def test_an_unknown_target_is_wrong_usage(words: list[str], capsys: Captured) -> None:
    assert run(["explain", str(tiny("tiny-vit")), *words]) == 2
    assert "unknown target 'npu' [MLC-U002]" in capsys.readouterr().err


def test_the_table_counts_kinds_or_lists_all(capsys: Captured) -> None:
    assert run(["explain", str(tiny("tiny-vit"))]) == 0
    short = capsys.readouterr().out
    assert run(["explain", str(tiny("tiny-vit")), "--all"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > len(short.splitlines())


def test_doctor_finds_what_is_needed(capsys: Captured) -> None:
    assert run(["doctor", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    parts = {finding["part"]: finding for finding in facts["findings"]}
    assert facts["healthy"]
    assert parts["xdsl"]["found"] == "0.75.0"
    assert parts["C runtime"]["state"] == "ok"
    assert all(f["remedy"] for f in facts["findings"] if f["state"] != "ok")
