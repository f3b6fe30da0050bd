"""QNN as a device of the C runtime: it runs the functions of a bundle's context binary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from mllm_compiler.backends.qnn.graph import Array, GraphFacts, Soc
from mllm_compiler.backends.qnn.sdk import Library
from mllm_compiler.backends.qnn.structures import DTYPES
from mllm_compiler.errors import CompileError


@dataclass
class QnnDevice:
    """Functions of a context binary by name, on HTP's emulator, in a process of its own.

    Attributes:
        binary: The context binary.
        soc: The chip that it was made for.
    """

    binary: bytes
    soc: Soc
    _library: Library | None = field(default=None, init=False)
    _graphs: dict[str, GraphFacts] = field(default_factory=dict[str, GraphFacts], init=False)

    def prepare(self, name: str) -> Callable[[Sequence[Array]], Sequence[Array]]:
        """The function of a name.

        Raises:
            CompileError: `MLC-V001`, QNN is not installed; `MLC-V002`, it refuses the file, or the
                file has no such function; `MLC-V005`, QNN or what made the
                file is another version.
        """
        if self._library is None:
            library = Library(self.soc)
            self._graphs = {graph.name: graph for graph in library.load(self.binary).graphs}
            self._library = library
        if name not in self._graphs:
            raise CompileError(
                "MLC-V002",
                f"QNN refuses it: the context binary has no graph '{name}'",
                location="qnn",
                remedy="compile the model again",
            )
        return partial(self._run, self._library, self._graphs[name])

    def _run(self, library: Library, graph: GraphFacts, arrays: Sequence[Array]) -> Sequence[Array]:
        ports = {port.name: port for port in graph.inputs}
        given = {f"arg{at}": array for at, array in enumerate(arrays)}
        inputs = {n: given[n].astype(DTYPES[port.element]) for n, port in ports.items()}
        results = library.run(graph.name, inputs)
        truths = {port.name for port in graph.outputs if port.element == "i1"}
        results |= {name: results[name].astype(np.bool_) for name in truths}
        return [results[f"result{at}"] for at in range(len(results))]
