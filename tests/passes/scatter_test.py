"""`TensorScatter` lifts whole; ONNX's own reference says what each case writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from mllm_compiler.passes.graphs import graphs
from mllm_compiler.reference import run_function
from tests.passes.exports_test import lifted

Shape = tuple[int, ...]
CASES: list[tuple[Shape, int, int, list[int] | None, str]] = [
    ((2, 3, 6, 4), -2, 1, [0, 5], "linear"),
    ((2, 3, 6, 4), -2, 3, [1, 3], "linear"),
    ((2, 3, 6, 4), -2, 3, None, "linear"),
    ((2, 3, 6, 4), -2, 1, [5, 7], "circular"),
    ((2, 3, 6, 4), -2, 4, [4, 11], "circular"),
    ((2, 6, 4), 1, 2, [4, 0], "linear"),
    ((2, 4, 6), -1, 2, [3, 1], "linear"),
    ((2, 6), 1, 2, [5, 1], "circular"),
    ((2, 3, 6, 4), -2, 6, [0, 0], "linear"),
]


@pytest.mark.parametrize(("shape", "axis", "count", "start", "mode"), CASES)
def test_new_tokens_stand_where_they_are_written(
    shape: Shape, axis: int, count: int, start: list[int] | None, mode: str, tmp_path: Path
) -> None:
    rng, new = np.random.default_rng(2), list(shape)
    new[axis] = count
    given = {
        n: rng.standard_normal(s).astype(np.float32) for n, s in (("past", shape), ("new", new))
    }
    if start is not None:
        given["start"] = np.array(start, np.int64)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), list(v.shape))
        for n, v in given.items()
    ]
    node = helper.make_node("TensorScatter", [*given], ["y"], name="/cache", axis=axis, mode=mode)
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, list(shape))
    graph = helper.make_graph([node], "g", infos, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])
    onnx.save(model, tmp_path / "m.onnx")
    module, store = lifted(tmp_path / "m.onnx")
    got = run_function(module, graphs(module)[0].sym_name.data, given, store)["y"]
    np.testing.assert_allclose(got, ReferenceEvaluator(model).run(None, given)[0], rtol=1e-6)
