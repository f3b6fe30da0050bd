"""A lifted module as a value that forgets names and order, to compare modules with."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnxruntime
from xdsl.dialects.builtin import FloatAttr, ModuleOp
from xdsl.ir import Attribute, Operation, SSAValue

from mllm_compiler.backends.onnx.export import export_graph
from mllm_compiler.backends.onnx.write import serialised
from mllm_compiler.dialects import make_context
from mllm_compiler.importer import Imported, import_model
from mllm_compiler.pass_run import run_passes
from mllm_compiler.passes.graphs import argument_names, block_of, graphs, result_names, return_of
from mllm_compiler.pipelines import pass_class, pass_names

onnxruntime.set_default_logger_severity(3)


def lifted(model: Path) -> Imported:
    imported = import_model(model)
    passes = [pass_class(name)() for name in pass_names("lift")]
    run_passes(imported.module, passes, make_context(imported.store))
    return imported


def exported(imported: Imported, folder: Path, opset: int | None = None) -> dict[str, Path]:
    """The files of a module's graphs."""
    paths: dict[str, Path] = {}
    for function in graphs(imported.module):
        name = function.sym_name.data
        paths[name] = folder / f"{name}.onnx"
        paths[name].write_bytes(serialised(export_graph(function, imported.store, opset)))
    return paths


def fingerprints(module: ModuleOp) -> list[str]:
    """What each graph computes, by types, properties and what each op reads; no names of ops."""
    found: list[str] = []
    for function in graphs(module):
        known: dict[SSAValue, str] = {}
        block = block_of(function)
        for name, argument in zip(argument_names(function), block.args, strict=True):
            known[argument] = f"{name}: {argument.type}"
        results = [fingerprint(v, known) for v in return_of(function).operands]
        found.append(str(sorted(zip(result_names(function), results, strict=True))))
    return found


def fingerprint(value: SSAValue, known: dict[SSAValue, str]) -> str:
    if value in known:
        return known[value]
    op = value.owner
    assert isinstance(op, Operation)
    properties = sorted((k, spelled(v)) for k, v in op.properties.items() if k != "name")
    read = [fingerprint(v, known) for v in op.operands]
    for at, result in enumerate(op.results):
        text = f"{op.name} {at} {properties} {result.type} {read}"
        known[result] = hashlib.sha256(text.encode()).hexdigest()
    return known[value]


def spelled(attribute: Attribute) -> str:
    """An attribute as text; a number as ONNX can hold it."""
    number = attribute.value.data if isinstance(attribute, FloatAttr) else None
    return str(attribute) if number is None else str(np.float32(number))


def answers(
    model: Path, inputs: dict[str, np.ndarray], *, optimised: bool = True
) -> dict[str, np.ndarray]:
    """What ONNX Runtime answers; not optimised, it quantises no activations of its own accord."""
    options = onnxruntime.SessionOptions()
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))
