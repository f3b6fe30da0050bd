"""A module of rknn ops as what the toolkit reads: an ONNX model a graph, and how to build them.

Weights lie once in a file beside the models, however many graphs read them.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Final

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.backends.numpy.compile import NumpyArtifact, compile_module
from mllm_compiler.backends.onnx.export import export_graph
from mllm_compiler.backends.onnx.write import serialised
from mllm_compiler.dialects.rknn import OPSET
from mllm_compiler.passes.calibration_data import needed_inputs
from mllm_compiler.passes.graphs import argument_names, graphs, result_names
from mllm_compiler.passes.lower_to_rknn import FLOAT, build_of
from mllm_compiler.weights import WeightStore

WEIGHTS: Final = "weights.bin"
SCRIPT: Final = "build.py"
PLAN: Final = "build.json"

MOST_SAMPLES: Final = 16
"""Samples of a graph that the toolkit calibrates on: it takes seconds for each."""


@dataclass(frozen=True, kw_only=True)
class Graph:
    """What the toolkit is told of a graph; files lie beside the script.

    Attributes:
        onnx: The model's file.
        inputs: The names of what it takes, in order.
        outputs: The names of what it gives, in order.
        dataset: The file that lists its samples; None where nothing is calibrated.
    """

    onnx: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dataset: str | None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """`build.json`: what is built for which chip.

    Attributes:
        soc: The chip.
        form: How weights and values are quantised; `f16` where they are not.
        method: Which weights share a scale.
        graphs: The graphs by name.
    """

    soc: str
    form: str
    method: str
    graphs: Mapping[str, Graph]


@dataclass(frozen=True, kw_only=True)
class RknnArtifact:
    """The files for the toolkit, weights still in the store.

    Attributes:
        plan: What is built.
        files: The files but for the weights, by name.
        program: The module, its entries and its weights.
    """

    plan: Plan
    files: Mapping[str, bytes]
    program: NumpyArtifact

    @property
    def graphs(self) -> tuple[str, ...]:
        """The names of the graphs."""
        return tuple(self.plan.graphs)


def emit(module: ModuleOp, store: WeightStore, samples: str = "") -> RknnArtifact:
    """What the toolkit reads of a module.

    Args:
        module: A module of rknn ops.
        store: The bytes of its weights.
        samples: A folder of `GRAPH/NNNN.npz`, to calibrate on where values have codes.

    Raises:
        CompileError: `MLC-Q002`, codes need samples and there are none; `MLC-Q003`, one lacks an
            input.
    """
    build, program = build_of(module), compile_module(module)
    outside = {weight.digest: (WEIGHTS, weight.offset) for weight in program.weights}
    made: dict[str, bytes] = {}
    plans: dict[str, Graph] = {}
    for graph in graphs(module):
        name, inputs = graph.sym_name.data, tuple(argument_names(graph))
        made[f"{name}.onnx"] = serialised(export_graph(graph, store, OPSET, outside=outside))
        dataset = None
        if build.form.data != FLOAT:
            dataset = f"{name}.txt"
            made |= _dataset(dataset, name, inputs, samples)
        plans[name] = Graph(
            onnx=f"{name}.onnx",
            inputs=inputs,
            outputs=tuple(result_names(graph)),
            dataset=dataset,
        )
    plan = Plan(soc=build.soc.data, form=build.form.data, method=build.method.data, graphs=plans)
    made[PLAN] = f"{json.dumps(asdict(plan), indent=1)}\n".encode()
    made[SCRIPT] = files("mllm_compiler.backends.rknn").joinpath(SCRIPT).read_bytes()
    return RknnArtifact(plan=plan, files=made, program=program)


def _dataset(
    list_file: str, graph: str, inputs: tuple[str, ...], samples: str
) -> Iterator[tuple[str, bytes]]:
    """A line for each sample, a file for each input of it; then those files."""
    lines = list[str]()
    for number, sample in enumerate(needed_inputs(samples, graph)[:MOST_SAMPLES]):
        names = [f"samples/{graph}/{number:04}.{at}.npy" for at in range(len(inputs))]
        lines.append(" ".join(names))
        for name, wanted in zip(names, inputs, strict=True):
            raw = io.BytesIO()
            np.save(raw, sample[wanted], allow_pickle=False)
            yield name, raw.getvalue()
    yield list_file, "".join(f"{line}\n" for line in lines).encode()
