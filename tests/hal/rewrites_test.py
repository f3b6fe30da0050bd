"""What the table proposes instead of an operator runs on the target `c`, and means the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from mllm_compiler.backends.c.emit import emit
from mllm_compiler.backends.c.sdk import CRunner
from mllm_compiler.dialects import make_context
from mllm_compiler.hal.rules import Rule
from mllm_compiler.hal.target import shared_rewrites
from mllm_compiler.importer import import_model
from mllm_compiler.pass_run import run_passes
from mllm_compiler.pipelines import pass_class, pass_names
from tests.importer.onnx_models import write

PAIRS = {
    "onnx.Hardmax": (
        "g (float[3, 4] x) => (float[3, 4] y) { y = Hardmax(x) }",
        """g (float[3, 4] x) => (float[3, 4] y) {
          top = ReduceMax<axes = [1]>(x)
          same = Equal(x, top)
          y = Cast<to = 1>(same)
        }""",
    ),
    "onnx.CumSum": (
        "g (float[3, 4] x) => (float[3, 4] y) <int64 a = {1}> { y = CumSum(x, a) }",
        """g (float[3, 4] x) => (float[3, 4] y)
        <float[4, 4] t = {1, 1, 1, 1, 0, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 1}> { y = MatMul(x, t) }""",
    ),
    "onnx.DepthToSpace": (
        "g (float[1, 8, 2, 3] x) => (float[1, 2, 4, 6] y) { y = DepthToSpace<blocksize = 2>(x) }",
        """g (float[1, 8, 2, 3] x) => (float[1, 2, 4, 6] y)
        <int64[6] s = {1, 2, 2, 2, 2, 3}, int64[4] e = {1, 2, 4, 6}> {
          a = Reshape(x, s)
          b = Transpose<perm = [0, 3, 4, 1, 5, 2]>(a)
          y = Reshape(b, e)
        }""",
    ),
    "onnx.OneHot": (
        """g (int64[3] x) => (float[3, 5] y) <int64 d = {5}, float[2] v = {0, 1}> {
          y = OneHot(x, d, v)
        }""",
        """g (int64[3] x) => (float[3, 5] y)
        <int64 o = {0}, int64 d = {5}, int64 i = {1}, int64[1] last = {1}> {
          all = Range(o, d, i)
          column = Unsqueeze(x, last)
          same = Equal(column, all)
          y = Cast<to = 1>(same)
        }""",
    ),
    "dtype": (
        "g (double[3, 4] x) => (double[3, 4] y) { y = Softmax(x) }",
        """g (double[3, 4] x) => (double[3, 4] y) {
          a = Cast<to = 1>(x)
          b = Softmax(a)
          y = Cast<to = 11>(b)
        }""",
    ),
}
"""A model with what is refused, and what the rewrite makes of it."""


def on_c(path: Path, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    imported = import_model(path)
    passes = [pass_class(name)() for name in pass_names("c")]
    run_passes(imported.module, passes, make_context(imported.store))
    with CRunner(emit(imported.module), imported.store) as runner:
        return runner.run(path.stem, inputs)


@pytest.mark.parametrize("name", PAIRS)
def test_a_rewrite_runs_and_means_the_same(name: str, tmp_path: Path) -> None:
    refused, proposed = PAIRS[name]
    by_rule, by_op = shared_rewrites()
    assert name in {*by_rule, *by_op}
    source = write(tmp_path, refused, name="refused.onnx")
    session = onnxruntime.InferenceSession(source)
    (given,) = session.get_inputs()
    x = np.random.default_rng(1).standard_normal(given.shape)
    x = np.array([4, 0, 2]) if "int64" in given.type else x
    inputs = {"x": x.astype(np.float32) if given.type == "tensor(float)" else x}
    (want,) = session.run(["y"], inputs)
    got = on_c(write(tmp_path, proposed, name="proposed.onnx"), inputs)["y"]
    np.testing.assert_allclose(got, want, atol=1e-6)


def test_the_table_names_rules_and_operators_that_exist() -> None:
    by_rule, by_op = shared_rewrites()
    assert {*by_rule} <= {str(rule) for rule in Rule}
    for name in by_op:
        dialect, _, operator = name.partition(".")
        assert dialect == "mllm" or onnx.defs.has(operator), name
