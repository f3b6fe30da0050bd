"""The meaning of `onnx` operators: imported cases of the standard give the standard's results.

One case of each operator runs here, before and after `infer-shapes` and `fold-constants`; the whole
suite is another test's. Control flow runs in our executor, so that all of its cases are taken.
"""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from mllm_compiler.dialects import make_context
from mllm_compiler.importer import Imported, import_model
from mllm_compiler.passes.fold_constants import FoldConstants
from mllm_compiler.passes.infer_shapes import InferShapes
from mllm_compiler.reference import run_function

OWN = {"If", "Loop", "Scan", "SequenceMap", "FlexAttention"}
"""Operators with meanings of ours: every case of them is taken."""

RANDOM = {"Bernoulli", "RandomNormal", "RandomUniform", "Multinomial"}


@cache
def cases() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        every = collect_testcases(None)
    chosen: dict[str, Any] = {}
    seen: set[str] = set()
    for case in every:
        kinds = {n.op_type for n in case.model.graph.node}
        if kinds & RANDOM or "bernoulli" in case.name:
            continue
        if kinds & OWN or not kinds <= seen:
            chosen[case.name] = case
        seen |= kinds
    return chosen


def plain(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def run(imported: Imported, case: Any) -> None:
    names = [i.name for i in case.model.graph.input]
    for inputs, expected in case.data_sets:
        feeds = dict(zip(names, map(plain, inputs), strict=True))
        results = run_function(imported.module, "m", feeds, imported.store)
        for output, reference in zip(case.model.graph.output, expected, strict=True):
            assert_same(results[output.name], plain(reference))


def assert_same(value: Any, reference: Any) -> None:
    if isinstance(reference, list | tuple):
        assert len(value) == len(reference)
        for one, other in zip(value, reference, strict=True):
            assert_same(one, other)
        return
    if not isinstance(reference, np.ndarray):
        assert (value is None) == (reference is None)
        return
    assert value.shape == reference.shape
    if reference.dtype.kind in "OUS":
        assert [text(s) for s in value.flat] == [text(s) for s in reference.flat]
        return
    assert value.dtype == reference.dtype
    if reference.dtype.kind in "biufc":
        np.testing.assert_allclose(value, reference, rtol=1e-3, atol=1e-5)
        return
    # Types of ml_dtypes: the same bits, or a last bit apart.
    np.testing.assert_allclose(
        value.astype(np.float32), reference.astype(np.float32), rtol=1e-2, atol=1e-2
    )


def text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def test_results_are_the_standards_before_and_after_the_shape_passes(tmp_path: Path) -> None:
    wrong: list[str] = []
    path = tmp_path / "m.onnx"
    for name, case in cases().items():
        path.write_bytes(case.model.SerializeToString())
        try:
            imported = import_model(path)
            run(imported, case)
            context = make_context(imported.store)
            InferShapes().apply(context, imported.module)
            FoldConstants().apply(context, imported.module)
            imported.module.verify()
            run(imported, case)
        except Exception as error:  # every failing case is listed
            wrong.append(f"{name}: {type(error).__name__}: {error}"[:300])
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("kind", sorted(OWN - {"FlexAttention"}))
def test_every_operator_with_a_graph_has_a_case(kind: str) -> None:
    taken = {n.op_type for case in cases().values() for n in case.model.graph.node}
    assert kind in taken
