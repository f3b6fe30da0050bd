"""Shape functions against the standard's test cases: with every extent a symbol, and against onnx.

Each node case of the `onnx` package is inferred with its extents replaced by symbols, and its small
integer operands as constants; the expressions, evaluated with the case's extents, must be the
shapes of the case's expected results.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, shape_inference
from xdsl.dialects.func import FuncOp

from mllm_compiler.dialects import make_context
from mllm_compiler.importer import import_model
from mllm_compiler.passes.infer_shapes import InferShapes
from mllm_compiler.passes.shape_functions import FUNCTIONS
from mllm_compiler.passes.shape_functions.knowledge import Known, of_type

STEP = 12
"""One case in as many is taken for operators with many cases."""


WRONG_IN_ONNX = {"onnx.STFT"}
"""Operators that onnx's inference gives the shape of a two-sided transform, whatever `onesided`."""


@cache
def cases() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        every = collect_testcases(None)
    chosen: dict[str, Any] = {}
    seen: dict[str, int] = {}
    for case in every:
        kinds = {n.op_type for n in case.model.graph.node}
        kind = ",".join(sorted(kinds)) if len(kinds) == 1 else "many"
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= 2 or seen[kind] % STEP == 0:
            chosen[case.name] = case
    return chosen


def array(value: object) -> object:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def is_small_integer(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.int64 and value.size <= 16


def symbolic(case: Any) -> tuple[onnx.ModelProto, dict[str, int]]:
    """The case's model with a symbol for each extent above 1, and the values of the symbols."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    env: dict[str, int] = {}
    inputs = list(model.graph.input)
    del model.graph.input[:]
    for value, given in zip(inputs, case.data_sets[0][0], strict=True):
        given = array(given)
        if is_small_integer(given):
            model.graph.initializer.append(numpy_helper.from_array(given, value.name))
            continue
        model.graph.input.append(value)
        if not value.type.HasField("tensor_type"):
            continue
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.dim_value > 1:
                symbol = f"{value.name}_{axis}"
                env[symbol] = dim.dim_value
                dim.dim_param = symbol
    for output in model.graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    return model, env


def inferred(model: onnx.ModelProto, folder: Path) -> list[Known]:
    """What is known of the results."""
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    imported = import_model(path)
    InferShapes().apply(make_context(imported.store), imported.module)
    imported.module.verify()
    function = next(f for f in imported.module.ops if isinstance(f, FuncOp))
    return [of_type(t) for t in function.function_type.outputs]


def check(known: Known, actual: object, env: Mapping[str, int]) -> None:
    if known.dims is None or not isinstance(actual, np.ndarray):
        return
    assert len(known.dims) == actual.ndim, f"{known.dims} for {actual.shape}"
    for dim, extent in zip(known.dims, actual.shape, strict=True):
        assert dim.unknown or dim.evaluate(env) == extent, f"{known.dims} for {actual.shape}"


def test_expressions_give_the_shapes_of_the_results(tmp_path: Path) -> None:
    wrong: list[str] = []
    for name, case in cases().items():
        model, env = symbolic(case)
        try:
            for known, actual in zip(inferred(model, tmp_path), case.data_sets[0][1], strict=True):
                check(known, array(actual), env)
        except Exception as error:  # every failing case is listed
            wrong.append(f"{name}: {type(error).__name__}: {error}"[:300])
    assert not wrong, "\n".join(wrong)


def test_nothing_is_less_known_than_onnx_knows(tmp_path: Path) -> None:
    less: list[str] = []
    for name, case in cases().items():
        model, _ = symbolic(case)
        kinds = {f"onnx.{n.op_type}" for n in model.graph.node}
        if not kinds <= FUNCTIONS.keys() - WRONG_IN_ONNX:
            continue
        theirs = shape_inference.infer_shapes(model, data_prop=True).graph.output
        for mine, output in zip(inferred(model, tmp_path), theirs, strict=True):
            if not output.type.tensor_type.HasField("shape"):
                continue
            static = [d.dim_value for d in output.type.tensor_type.shape.dim]
            known = [] if mine.dims is None else [d.as_int() for d in mine.dims]
            if len(known) != len(static):
                less.append(f"{name}: rank {len(known)} for {static}")
            elif any(s and s != k for s, k in zip(static, known, strict=True)):
                less.append(f"{name}: {known} for {static}")
    assert not less, "\n".join(less)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_is_of_an_operator(name: str) -> None:
    from mllm_compiler.dialects.onnx import operators

    assert name in operators()
