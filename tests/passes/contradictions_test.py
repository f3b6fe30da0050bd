"""Models that contradict themselves are refused, where ONNX's checker or reference does too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from mllm_compiler.dialects import make_context
from mllm_compiler.errors import CompileError
from mllm_compiler.importer import import_model
from mllm_compiler.passes.infer_shapes import InferShapes
from mllm_compiler.reference.executor import run_function
from tests.importer import onnx_models as models


def infer(model: onnx.ModelProto, folder: Path) -> None:
    imported = import_model(models.save(model, folder))
    InferShapes().apply(make_context(imported.store), imported.module)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ("3, 2", "the model declares [3, 2], but its nodes make [2, 3]"),
        ("2, 3, 1", "the model declares [2, 3, 1], but its nodes make [2, 3]"),
        ("n, 4", "the model declares [n, 4], but its nodes make [2, 3]"),
    ],
)
def test_another_output_shape_than_the_nodes_make(
    declared: str, message: str, tmp_path: Path
) -> None:
    model = models.model_of(f"g (float[2, 3] x) => (float[{declared}] y) {{ y = Relu(x) }}")
    with pytest.raises(onnx.shape_inference.InferenceError):
        onnx.checker.check_model(model, full_check=True)
    with pytest.raises(CompileError) as caught:
        infer(model, tmp_path)
    assert str(caught.value).startswith(f'output "y": error: {message} [MLC-I015] (')


@pytest.mark.parametrize("declared", ["2, 3", "n, 3", "n, n", "n, m"])
def test_an_output_shape_with_names_is_no_contradiction(declared: str, tmp_path: Path) -> None:
    infer(
        models.model_of(f"g (float[2, 3] x) => (float[{declared}] y) {{ y = Relu(x) }}"), tmp_path
    )


def test_minus_one_is_a_dimension_that_varies(tmp_path: Path) -> None:
    """As for ONNX Runtime, which runs the same model with any extent there."""
    model = models.model_of("g (float[-1, 3] x) => (float[-1, 3] y) { y = Relu(x) }")
    feeds = {"x": np.zeros((5, 3), np.float32)}
    session = onnxruntime.InferenceSession(model.SerializeToString())
    assert session.run(None, feeds)[0].shape == (5, 3)
    imported = import_model(models.save(model, tmp_path))
    InferShapes().apply(make_context(imported.store), imported.module)
    results = run_function(imported.module, "model", feeds, imported.store)
    assert results["y"].shape == (5, 3)


GATHER = """
g (float[3, 2] x) => (float[1, 2] y) {{
  i = Constant<value = int64[1] {{{index}}}>()
  [pick] y = Gather<axis = 0>(x, i)
}}
"""


@pytest.mark.parametrize(("index", "inside"), [(2, True), (-3, True), (3, False), (-4, False)])
def test_a_constant_index_outside_of_its_axis(index: int, inside: bool, tmp_path: Path) -> None:
    model = models.model_of(GATHER.format(index=index))
    feeds = {"x": np.zeros((3, 2), np.float32)}
    if inside:
        ReferenceEvaluator(model).run(None, feeds)
        infer(model, tmp_path)
        return
    with pytest.raises(IndexError):
        ReferenceEvaluator(model).run(None, feeds)
    with pytest.raises(CompileError) as caught:
        infer(model, tmp_path)
    assert caught.value.code == "MLC-I015"
    assert caught.value.location == "pick"
    assert f"{index}" in caught.value.message


def test_a_branch_that_may_never_run_may_index_outside(tmp_path: Path) -> None:
    """Scripted torch models ask for a fifth dim where the rank says that there is one."""
    model = models.model_of(
        """
        g (float[3, 2] x, bool c) => (float[k, 2] y) {
          y = If (c) <
            then_branch = a () => (float[k, 2] t) {
              i = Constant<value = int64[1] {7}>()
              t = Gather<axis = 0>(x, i)
            },
            else_branch = b () => (float[k, 2] e) { e = Identity(x) }
          >
        }
        """
    )
    infer(model, tmp_path)
