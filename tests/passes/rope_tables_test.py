"""Rotations whose cosines and sines are looked up by `GatherND`, against ONNX Runtime."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from mllm_compiler.passes.graphs import graphs
from mllm_compiler.reference import run_function
from tests.passes.exports_test import lifted

ROTATION = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[b, 2, t, 8] x, int64[b, t] position_ids) => (float[b, 2, t, 8] y) {
  last = Constant <value_ints = [-1]> ()
  at = Unsqueeze (position_ids, last)
  cos_rows = GatherND (cos, at)
  sin_rows = GatherND (sin, at)
  heads = Constant <value_ints = [1]> ()
  c = Unsqueeze (cos_rows, heads)
  s = Unsqueeze (sin_rows, heads)
  low, high = Split <axis = -1> (x)
  minus = Neg (high)
  turned = Concat <axis = -1> (minus, low)
  straight = Mul (x, c)
  crossed = Mul (turned, s)
  y = Add (straight, crossed)
}
"""


def test_rows_that_are_pointed_at_are_positions(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(ROTATION)
    half = np.arange(32)[:, None] * 10000.0 ** (-np.arange(4) / 4)
    angles = np.concatenate([half, half], axis=1)
    tables = {"cos": np.cos(angles), "sin": np.sin(angles)}
    weights = [numpy_helper.from_array(t.astype(np.float32), n) for n, t in tables.items()]
    model.graph.initializer.extend(weights)
    onnx.save(model, tmp_path / "m.onnx")
    x = np.random.default_rng(4).standard_normal((2, 2, 3, 8)).astype(np.float32)
    given = {"x": x, "position_ids": np.array([[0, 1, 2], [31, 7, 8]])}
    module, store = lifted(tmp_path / "m.onnx")
    counts = Counter(op.name for op in module.walk())
    assert (counts["mllm.rope"], counts["mllm.gather"], counts["mllm.binary"]) == (1, 0, 0)
    got = run_function(module, graphs(module)[0].sym_name.data, given, store)["y"]
    want = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, given)[0]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
