"""`lift-onnx` and what follows it on the cases that the ONNX standard ships with its operators."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.backend.test.case import node as standard
from onnx.backend.test.case.test_case import TestCase

from mllm_compiler.dialects import make_context
from mllm_compiler.dialects.verify import verify
from mllm_compiler.importer.pipeline import import_model
from mllm_compiler.passes.graphs import graphs
from mllm_compiler.pipelines import pass_class, pass_names
from mllm_compiler.reference import run_function

LIFTED = {
    "abs": 1,
    "add": 8,
    "and_": 8,
    "argmax": 8,
    "argmin": 8,
    "averagepool": 12,
    "batch_normalization": 2,
    "bitwiseand": 4,
    "bitwisenot": 3,
    "bitwiseor": 4,
    "bitwisexor": 4,
    "ceil": 2,
    "clip": 12,
    "concat": 12,
    "constantofshape": 3,
    "conv": 6,
    "cos": 2,
    "div": 10,
    "dropout": 6,
    "elu": 3,
    "equal": 8,
    "erf": 1,
    "exp": 2,
    "expand": 2,
    "flatten": 9,
    "floor": 2,
    "gather": 4,
    "gelu": 4,
    "gemm": 11,
    "globalaveragepool": 2,
    "globalmaxpool": 2,
    "greater": 8,
    "greater_or_equal": 8,
    "groupnormalization": 2,
    "hardsigmoid": 3,
    "hardswish": 1,
    "identity": 1,
    "instance_normalization": 2,
    "isnan": 2,
    "leakyrelu": 3,
    "less": 8,
    "less_or_equal": 8,
    "log": 2,
    "logsoftmax": 7,
    "matmul": 7,
    "max": 14,
    "maxpool": 10,
    "mean": 3,
    "min": 14,
    "mish": 1,
    "mod": 12,
    "mul": 9,
    "neg": 2,
    "not_": 3,
    "or_": 8,
    "pow": 12,
    "prelu": 2,
    "reciprocal": 2,
    "reducemax": 2,
    "reducemin": 2,
    "reduceprod": 2,
    "relu": 1,
    "reshape": 10,
    "resize": 5,
    "rmsnormalization": 19,
    "round": 1,
    "shape": 11,
    "sigmoid": 2,
    "sign": 1,
    "sin": 2,
    "size": 2,
    "softmax": 7,
    "softplus": 2,
    "softsign": 2,
    "split": 16,
    "sqrt": 2,
    "squeeze": 2,
    "sub": 9,
    "sum": 3,
    "swish": 1,
    "tan": 2,
    "tanh": 2,
    "transpose": 7,
    "trilu": 18,
    "unsqueeze": 7,
    "where": 2,
    "xor": 8,
}
"""How many of the standard's cases in each file are lifted wholly."""


def cases_of(file: str) -> Iterator[TestCase]:
    """The cases that importing a file of the standard's suite registers."""
    known = standard._NodeTestCases
    before = len(known)
    import_module(f"onnx.backend.test.case.node.{file}")
    yield from (case for case in known[before:] if "_expanded" not in case.name)


def run_case(case: TestCase, folder: Path) -> bool:
    """Compares a wholly lifted model with the standard's results; whether it is that."""
    path = folder / "model.onnx"
    onnx.save(case.model, path)
    imported = import_model(path)
    for name in pass_names("lift"):
        pass_class(name)().apply(make_context(imported.store), imported.module)
        verify(imported.module)
    if any(op.name.startswith("onnx.") for op in imported.module.walk()):
        return False
    graph = graphs(imported.module)[0]
    names = [value.name for value in case.model.graph.input]
    for given, expected in case.data_sets:
        inputs = dict(zip(names, map(np.asarray, given), strict=True))
        made = run_function(imported.module, graph.sym_name.data, inputs, imported.store)
        for ours, theirs in zip(made.values(), map(np.asarray, expected), strict=True):
            compare(case.name, ours, theirs)
    return True


def compare(name: str, ours: np.ndarray, theirs: np.ndarray) -> None:
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), name
    if ours.dtype.kind == "f":
        wide = (a.astype(np.float64) for a in (ours, theirs))
        half = ours.dtype.itemsize == 2
        np.testing.assert_allclose(*wide, rtol=1e-2 if half else 1e-5, atol=1e-5, err_msg=name)
    else:
        np.testing.assert_array_equal(ours, theirs, err_msg=name)


def has_arrays(case: TestCase) -> bool:
    values = [v for pair in case.data_sets for side in pair for v in side]
    return all(isinstance(v, np.ndarray | np.generic) for v in values)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("file", LIFTED)
def test_the_standards_cases(file: str, tmp_path: Path) -> None:
    cases = [case for case in cases_of(file) if has_arrays(case)]
    lifted = sum(run_case(case, tmp_path) for case in cases)
    assert lifted == LIFTED[file]
