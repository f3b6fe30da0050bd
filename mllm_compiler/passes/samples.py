"""Calibration inputs on their way through a graph, op by op.

Each op can be changed after what it reads is known, and before what it gives is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects.locations import location_name
from mllm_compiler.dialects.types import shape_of
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.graphs import argument_names, block_of
from mllm_compiler.reference import Array, Frame, meaning_of
from mllm_compiler.reference.executor import bind_symbols
from mllm_compiler.weights import WeightStore

USUAL = 99.9
"""The percentile of magnitudes that says how far a value usually reaches."""


@dataclass
class Samples:
    """The values of a graph for each of some inputs.

    Attributes:
        frames: The values alive, for each input.
        wanted: The ops that are still to be computed.
    """

    frames: list[Frame]
    wanted: set[Operation]
    _grams: dict[SSAValue, NDArray[np.float64]] = field(
        default_factory=dict[SSAValue, NDArray[np.float64]]
    )

    @staticmethod
    def of(
        graph: FuncOp,
        inputs: Sequence[Mapping[str, Array]],
        store: WeightStore,
        asking: Iterable[Operation],
    ) -> Samples:
        """Inputs at the entry of a graph, of whose ops some will ask what they read.

        Raises:
            CompileError: `MLC-Q003`, an input is missing; `MLC-D001`, one does not fit.
        """
        frames: list[Frame] = []
        for given in inputs:
            arrays = [_input(graph, given, name) for name in argument_names(graph)]
            frame = Frame(bind_symbols(graph, arrays), store)
            frame.values.update(zip(graph.args, arrays, strict=True))
            frames.append(frame)
        return Samples(frames, _needed(graph, asking) if frames else set())

    def step(self, op: Operation) -> None:
        """Computes an op where something that is asked for needs it."""
        if op not in self.wanted:
            return
        meaning = meaning_of(op)
        if meaning is None:
            message = f"'{op.name}' has no meaning in the reference"
            raise CompileError("MLC-D002", message, location=location_name(op))
        for frame in self.frames:
            results = meaning(op, [frame.values[v] for v in op.operands], frame)
            frame.values.update(zip(op.results, results, strict=True))
        self.finish(op, op.operands)

    def asks_for(self, value: SSAValue) -> bool:
        """Whether something that is still to be computed reads a value."""
        return any(use.operation in self.wanted for use in value.uses)

    def put(self, value: SSAValue, make: Callable[[Frame], Array]) -> None:
        """Sets what a value is for each input."""
        for frame in self.frames:
            frame.values[value] = make(frame)

    def of_value(self, value: SSAValue) -> list[Array]:
        """What a value is for each input."""
        return [frame.values[value] for frame in self.frames]

    def finish(self, op: Operation, operands: Iterable[SSAValue]) -> None:
        """Forgets what nothing needs any more now that an op is done."""
        self.wanted.discard(op)
        for value in set(operands):
            if not self.asks_for(value):
                self._grams.pop(value, None)
                for frame in self.frames:
                    frame.values.pop(value, None)

    def gram(self, value: SSAValue) -> NDArray[np.float64]:
        """[K, K]: the sum of x x^T over the rows x of a value, which products that share it share.

        Each input's part has single precision, the sum double.
        """
        if value not in self._grams:
            inputs = shape_of(value)[-1].as_int() or 0
            gram = np.zeros((inputs, inputs))
            for x in self.of_value(value):
                rows = x.reshape(-1, inputs).astype(np.float32, copy=False)
                gram += rows.T @ rows
            self._grams[value] = gram
        return self._grams[value]

    def reach(self, value: SSAValue) -> tuple[float, float]:
        """The largest magnitude of a value, and the one that 1 in 1,000 exceeds, on average."""
        arrays = [np.abs(a) for a in self.of_value(value) if a.size]
        if not arrays:
            return 0.0, 0.0
        usual = [float(np.percentile(a, USUAL)) for a in arrays]
        return max(float(a.max()) for a in arrays), float(np.mean(usual))

    def range(self, value: SSAValue) -> tuple[float, float]:
        """The least and the largest number of a value over all inputs, 0 among them."""
        arrays = self.of_value(value)
        return (
            min(0.0, *(float(a.min(initial=0)) for a in arrays)),
            max(0.0, *(float(a.max(initial=0)) for a in arrays)),
        )


def _input(graph: FuncOp, given: Mapping[str, Array], name: str) -> Array:
    if name in given:
        return given[name]
    raise CompileError(
        "MLC-Q003",
        f"a sample lacks the input '{name}'",
        location=graph.sym_name.data,
        remedy=f"it has: {', '.join(given) or 'nothing'}",
    )


def _needed(graph: FuncOp, asking: Iterable[Operation]) -> set[Operation]:
    """Some ops of a graph and those that their operands follow from."""
    ops, values = set(asking), set[SSAValue]()
    for op in reversed(list(block_of(graph).ops)):
        if op in ops or any(result in values for result in op.results):
            ops.add(op)
            values.update(v for inner in op.walk() for v in inner.operands)
    return ops
