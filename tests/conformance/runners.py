"""Runs a case at one level: on the reference, lifted to `mllm`, as a program of the C runtime."""

from __future__ import annotations

import tempfile
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnxruntime import InferenceSession, set_default_logger_severity
from onnxruntime.capi import onnxruntime_pybind11_state as errors

from mllm_compiler.backends.c.emit import emit
from mllm_compiler.backends.c.sdk import CRunner
from mllm_compiler.backends.onnx.export import export_graph
from mllm_compiler.backends.onnx.write import serialised
from mllm_compiler.dialects import make_context
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.errors import CompileError
from mllm_compiler.importer import Imported, import_model
from mllm_compiler.pass_run import run_passes
from mllm_compiler.passes.graphs import graphs
from mllm_compiler.pipelines import LIFT, LOWER, PLACE, PLAN, SHAPES, SPLIT, pass_class
from mllm_compiler.reference import run_function
from runtime_stub.failure import RuntimeFailure
from tests.conformance.cases import Case
from tests.conformance.compare import difference

PASSED, REFUSED, WRONG, CRASHED, UNLIFTED = "passed", "refused", "wrong", "crashed", "unlifted"
"""What becomes of a case; `unlifted`: an op of the `onnx` dialect is left after all lifts."""


@dataclass(frozen=True)
class Outcome:
    """What became of a case, and why: a code and a line, or the first difference."""

    status: str
    why: str = ""


set_default_logger_severity(3)

Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class UnliftedError(Exception):
    """An op of the `onnx` dialect is left."""


def run_numpy(case: Case) -> Outcome:
    """The reference on the `onnx` dialect, as imported and with inferred shapes."""
    return _judged(lambda: _numpy(case))


def run_lifted(case: Case) -> Outcome:
    """The reference on the `mllm` dialect, where no op of `onnx` is left."""
    return _judged(lambda: _lifted(case))


def run_c(case: Case) -> Outcome:
    """The C runtime."""
    return _judged(lambda: _c(case))


def run_exported(case: Case, opset: int) -> Outcome:
    """ONNX Runtime on the `mllm` dialect that is written back as ONNX.

    Where it has no kernel for a type, the standard's own reference runs what is written.
    """
    return _judged(lambda: _exported(case, opset))


def _judged(run: Callable[[], str | None]) -> Outcome:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            wrong = run()
        except (CompileError, RuntimeFailure) as error:
            return Outcome(REFUSED, str(error))
        except UnliftedError as error:
            return Outcome(UNLIFTED, str(error))
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(frame.filename).name}:{frame.lineno}"
            return Outcome(CRASHED, f"{type(error).__name__} at {where}: {error}")
    return Outcome(PASSED) if wrong is None else Outcome(WRONG, wrong)


def _numpy(case: Case) -> str | None:
    imported = _import(case)
    wrong = _wrong(case, imported, _reference(imported))
    if wrong is not None:
        return wrong
    _apply(imported, SHAPES.passes[:1])
    wrong = _wrong(case, imported, _reference(imported))
    return wrong and f"with inferred shapes: {wrong}"


def _lifted(case: Case) -> str | None:
    imported = _import(case)
    _apply(imported, (*SHAPES.passes, *LIFT.passes))
    left = sorted({op.name for op in imported.module.walk() if isinstance(op, OnnxOp)})
    if left:
        raise UnliftedError(f"left: {', '.join(left)}")
    return _wrong(case, imported, _reference(imported))


def _c(case: Case) -> str | None:
    imported = _import(case)
    _apply(imported, (*SHAPES.passes, *LIFT.passes, *PLACE.passes), target="c")
    _apply(imported, (*SPLIT.passes, *LOWER.passes, *PLAN.passes))
    entry = next(iter(imported.spec.graphs))
    with CRunner(emit(imported.module), imported.store) as runner:
        return _wrong(case, imported, lambda inputs: runner.run(entry, inputs))


def _exported(case: Case, opset: int) -> str | None:
    imported = _import(case)
    _apply(imported, (*SHAPES.passes, *LIFT.passes))
    (function,) = graphs(imported.module)
    model = serialised(export_graph(function, imported.store, opset))
    proto = onnx.load_from_string(model)
    names = [output.name for output in proto.graph.output]

    def answer(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        # ONNX Runtime takes no scalars of NumPy.
        given = {n: np.asarray(v) if isinstance(v, np.generic) else v for n, v in inputs.items()}
        try:
            results = InferenceSession(model).run(names, given)
        except (errors.NotImplemented, errors.Fail, RuntimeError):
            results = ReferenceEvaluator(proto).run(None, given)
        return dict(zip(names, results, strict=True))

    return _wrong(case, imported, answer)


def _import(case: Case) -> Imported:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{case.name}.onnx"
        file.write_bytes(case.model)
        return import_model(file)


def _apply(imported: Imported, names: tuple[str, ...], target: str = "c") -> None:
    options = {"place": {"target": target}}
    passes = [pass_class(name)(**options.get(name, {})) for name in names]
    run_passes(imported.module, passes, make_context(imported.store))


def _reference(imported: Imported) -> Answer:
    entry = next(iter(imported.spec.graphs))
    return lambda inputs: run_function(imported.module, entry, inputs, imported.store)


def _wrong(case: Case, imported: Imported, answer: Answer) -> str | None:
    """The first difference of any data set."""
    for number, data in enumerate(case.data):
        results = answer(data.inputs)
        for name, expected in zip(results, data.outputs, strict=True):
            wrong = difference(expected, results[name], rtol=case.rtol, atol=case.atol)
            if wrong is not None:
                return f"data set {number}, output '{name}': {wrong}"
    return None


RUNNERS: dict[str, Callable[[Case], Outcome]] = {
    "numpy": run_numpy,
    "mllm": run_lifted,
    "c": run_c,
}
"""Levels by name."""
