"""Runs the target `tflite`: LiteRT's interpreter over the file of a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mllm_compiler.backends.runner import Array, Runner
from mllm_compiler.backends.tflite.sdk import Interpreter


@dataclass
class TfliteRunner(Runner):
    """Runs graphs by their signatures; the module says what they take and give."""

    _interpreter: Interpreter | None = field(default=None, init=False)

    def open(self, file: memoryview) -> None:
        """Gives LiteRT the file.

        Raises:
            CompileError: `MLC-V001`, LiteRT is not installed; `MLC-V002`, it refuses the file.
        """
        self._interpreter = Interpreter(file)

    def run_graph(self, graph: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of a graph by name, on inputs of its shapes."""
        assert self._interpreter is not None, "open() comes first"
        return self._interpreter.run(graph, inputs)
