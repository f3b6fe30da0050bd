"""Runs the target `tflite`: LiteRT's interpreter over the file of a bundle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from mllm_compiler.backends.runner import Array, Runner
from mllm_compiler.backends.tflite.sdk import Interpreter
from mllm_compiler.passes.graphs import argument_names
from mllm_compiler.reference import find_function
from mllm_compiler.reference.executor import arguments, bind_symbols


@dataclass
class TfliteRunner(Runner):
    """Runs graphs by their signatures; the module says what they take and give."""

    MEMBER: ClassVar[str] = "targets/tflite/model.tflite"
    _interpreter: Interpreter | None = field(default=None, init=False)

    def open(self, names: Iterable[str], member: Callable[[str], memoryview]) -> None:
        """Gives LiteRT the file of the bundle.

        Raises:
            CompileError: `MLC-V001`, LiteRT is not installed; `MLC-V002`, it refuses the file.
        """
        self._interpreter = Interpreter(member(self.MEMBER))

    def run_graph(self, graph: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of a graph by name, on inputs of its shapes.

        Raises:
            CompileError: `MLC-D001`, an input is missing or does not fit; `MLC-V002`.
        """
        assert self._interpreter is not None, "open() comes first"
        function = find_function(self.module, graph)
        arrays = arguments(function, inputs)
        bind_symbols(function, arrays)
        given = dict(zip(argument_names(function), arrays, strict=True))
        return self._interpreter.run(graph, given)
