"""The cases of the suite that ships in the `onnx` package, without those that download models.

The node cases are computed when `onnx.backend.test` is imported, which takes many seconds; they are
kept in `build/`, in a file for each version of the package.
"""

from __future__ import annotations

import os
import pickle
import tempfile
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import onnx
from onnx import numpy_helper

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / f"conformance-onnx-{onnx.__version__}-2.pickle"
KINDS = ("node", "pytorch-converted", "pytorch-operator", "simple")
SHARE = 8
"""`make test` runs one case in so many."""

Value = Any
"""A tensor, a list (a sequence) or None (an empty optional)."""


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """Inputs by name, and what a run must answer, in the order of the graph's outputs."""

    inputs: dict[str, Value]
    outputs: tuple[Value, ...]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model and what it answers.

    Attributes:
        name: `test_abs`.
        kind: One of `KINDS`.
        operator: The operator that it is about: that of its one node; else that of its kind.
        model: The serialised model.
        data: What is given and expected.
        rtol: The relative tolerance of the suite.
        atol: The absolute one.
    """

    name: str
    kind: str
    operator: str
    model: bytes
    data: tuple[DataSet, ...]
    rtol: float
    atol: float


@cache
def cases() -> dict[str, Case]:
    """Every case by name, in the order of names."""
    if not KEPT.exists():
        _keep(_load())
    loaded: dict[str, Case] = pickle.loads(KEPT.read_bytes())
    return loaded


def in_fast_tests(name: str) -> bool:
    """Whether `make test` runs the case."""
    return list(cases()).index(name) % SHARE == 0


def _keep(loaded: dict[str, Case]) -> None:
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=KEPT.parent, delete=False) as out:
        pickle.dump(loaded, out)
    os.replace(out.name, KEPT)


def _load() -> dict[str, Case]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Imported late: this computes the node cases.
        from onnx.backend.test.loader import load_model_tests

        found = [_case(test, kind) for kind in KINDS for test in load_model_tests(kind=kind)]
    return {case.name: case for case in sorted(found, key=lambda c: (KINDS.index(c.kind), c.name))}


def _case(test: Any, kind: str) -> Case:
    if test.model_dir is None:
        model, raw = test.model, test.data_sets
    else:
        folder = Path(test.model_dir)
        model = onnx.load(folder / "model.onnx")
        raw = [_read(model, data) for data in sorted(folder.glob("test_data_set_*"))]
    return Case(
        name=test.name,
        kind=kind,
        operator=_operator(model, kind),
        model=model.SerializeToString(),
        data=tuple(
            DataSet(inputs=_named(model, inputs), outputs=tuple(map(_array, outputs)))
            for inputs, outputs in raw
        ),
        rtol=test.rtol,
        atol=test.atol,
    )


def _operator(model: onnx.ModelProto, kind: str) -> str:
    nodes = model.graph.node
    if kind != "node" or not nodes:
        return f"({kind})"
    # A sequence case makes its sequence first: the last node is what it is about.
    node = nodes[-1]
    return f"{node.domain}.{node.op_type}".removeprefix("ai.onnx.").lstrip(".")


def _named(model: onnx.ModelProto, inputs: list[Value]) -> dict[str, Value]:
    names = [i.name for i in model.graph.input]
    if len(inputs) < len(names):
        weights = {i.name for i in model.graph.initializer}
        names = [n for n in names if n not in weights]
    return dict(zip(names, map(_array, inputs), strict=False))


def _array(value: Value) -> Value:
    """A value as the reference takes it: some cases give protobufs."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return [_array(v) for v in value] if isinstance(value, list) else value


def _read(model: onnx.ModelProto, folder: Path) -> tuple[list[Value], list[Value]]:
    sides = (("input", model.graph.input), ("output", model.graph.output))
    read: list[list[Value]] = []
    for word, infos in sides:
        count = len(list(folder.glob(f"{word}_*.pb")))
        read.append(
            [_value(folder / f"{word}_{i}.pb", infos[i].type) for i in range(count)],
        )
    return read[0], read[1]


def _value(file: Path, type: onnx.TypeProto) -> Value:
    raw = file.read_bytes()
    match type.WhichOneof("value"):
        case "sequence_type":
            return numpy_helper.to_list(onnx.SequenceProto.FromString(raw))
        case "optional_type":
            return numpy_helper.to_optional(onnx.OptionalProto.FromString(raw))
        case _:
            return numpy_helper.to_array(onnx.TensorProto.FromString(raw))
