"""`Gradient` becomes arithmetic where its rule is known, and stays an operator elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mllm_compiler.importer import Imported, import_model
from mllm_compiler.reference import run_function

TRAINING = "ai.onnx.preview.training"


def imported(folder: Path, *nodes: onnx.NodeProto, y: str) -> Imported:
    gradient = helper.make_node(
        "Gradient", ["a", "b"], ["da", "db"], domain=TRAINING, xs=["a", "b"], y=y
    )
    infos = [
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in names]
        for names in (("a", "b"), ("da", "db"))
    ]
    graph = helper.make_graph([*nodes, gradient], "g", *infos)
    imports = [helper.make_opsetid("", 12), helper.make_opsetid(TRAINING, 1)]
    file = folder / "g.onnx"
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), file)
    return import_model(file)


def test_derivatives_are_those_of_calculus(tmp_path: Path) -> None:
    model = imported(
        tmp_path,
        helper.make_node("Sub", ["a", "b"], ["c"]),
        helper.make_node("Neg", ["c"], ["d"]),
        helper.make_node("Mul", ["d", "b"], ["e"]),
        y="e",
    )
    a, b = np.array([1, 2, 3], np.float32), np.array([4, 5, 7], np.float32)
    # e = (b - a) b
    results = run_function(model.module, "g", {"a": a, "b": b}, model.store)
    assert results["da"].tolist() == (-b).tolist()
    assert results["db"].tolist() == (2 * b - a).tolist()


def test_what_y_does_not_depend_on_has_no_slope(tmp_path: Path) -> None:
    model = imported(tmp_path, helper.make_node("Add", ["a", "a"], ["c"]), y="c")
    a = np.ones(3, np.float32)
    results = run_function(model.module, "g", {"a": a, "b": a}, model.store)
    assert results["da"].tolist() == [2, 2, 2]
    assert results["db"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("operator", ["Pow", "Div"])
def test_an_operator_without_a_rule_keeps_the_gradient(operator: str, tmp_path: Path) -> None:
    model = imported(tmp_path, helper.make_node(operator, ["a", "b"], ["c"]), y="c")
    assert "onnx.training.Gradient" in {op.name for op in model.module.walk()}
