"""Fused and quantised operators lift whole, and compute what ONNX Runtime computes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.backends.c.emit import emit
from mllm_compiler.backends.c.sdk import CRunner
from mllm_compiler.dialects import make_context
from mllm_compiler.dialects.verify import verify
from mllm_compiler.flops import lifted_share
from mllm_compiler.importer.pipeline import import_model
from mllm_compiler.pass_run import run_passes
from mllm_compiler.passes.graphs import graphs
from mllm_compiler.pipelines import pass_class, pass_names
from mllm_compiler.reference import run_function
from mllm_compiler.weights import WeightStore
from tests.passes import fused_models as fused
from tests.passes import quantised_models as quantised


def lifted(file: Path) -> tuple[ModuleOp, WeightStore]:
    imported = import_model(file)
    context = make_context(imported.store)
    for name in pass_names("lift"):
        pass_class(name)().apply(context, imported.module)
        verify(imported.module)
    return imported.module, imported.store


def expected(case: fused.Case, file: Path) -> list[np.ndarray]:
    """The results of ONNX Runtime, or, where it has no kernel, of the `onnx` ops."""
    if case.runtime:
        return onnxruntime.InferenceSession(file).run(None, case.feeds())
    imported = import_model(file)
    graph = next(iter(graphs(imported.module))).sym_name.data
    return list(run_function(imported.module, graph, case.feeds(), imported.store).values())


@pytest.mark.parametrize("case", [*fused.CASES, *quantised.CASES], ids=lambda c: c.id)
def test_a_fused_operator_lifts_whole(case: fused.Case, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    onnx.save(case.model(), file)
    wanted = expected(case, file)
    module, store = lifted(file)
    counts = Counter(op.name for op in module.walk())
    assert not [name for name in counts if name.startswith("onnx.")]
    assert lifted_share(module) == 1.0
    assert {k: counts[k] for k in case.lifted} == dict(case.lifted)
    graph = next(iter(graphs(module))).sym_name.data
    results = run_function(module, graph, case.feeds(), store)
    for want, got in zip(wanted, results.values(), strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("case", quantised.CASES, ids=lambda c: c.id)
def test_a_quantised_operator_runs_in_c(case: fused.Case, tmp_path: Path) -> None:
    """Equal to the reference, but for products of real numbers."""
    file = tmp_path / "model.onnx"
    onnx.save(case.model(), file)
    module, store = lifted(file)
    graph = next(iter(graphs(module))).sym_name.data
    wanted = run_function(module, graph, case.feeds(), store)
    reals = any(op.name == "mllm.linear" for op in module.walk())
    imported = import_model(file)
    passes = [pass_class(name)() for name in pass_names("c")]
    run_passes(imported.module, passes, make_context(imported.store))
    with CRunner(emit(imported.module), imported.store, threads=2) as runner:
        results = runner.run(graph, case.feeds())
    for name, want in wanted.items():
        atol = 1e-6 * np.abs(want).max() if reals else 0
        np.testing.assert_allclose(results[name], want, rtol=0, atol=atol)
