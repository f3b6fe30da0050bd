"""Runs the target `qnn`: HTP's emulator, in QNN's library, over the context binary of a bundle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from mllm_compiler.backends.qnn.emit import soc_of
from mllm_compiler.backends.qnn.sdk import Library, context_in
from mllm_compiler.backends.runner import Array, Runner
from mllm_compiler.dialects.types import dtype_of, element_of
from mllm_compiler.passes.graphs import argument_names
from mllm_compiler.reference import find_function
from mllm_compiler.reference.executor import arguments, bind_symbols


@dataclass
class QnnRunner(Runner):
    """Runs graphs by name; the module says what they take and give."""

    _library: Library | None = field(default=None, init=False)

    def open(self, names: Iterable[str], member: Callable[[str], memoryview]) -> None:
        """Loads the context binary.

        Raises:
            CompileError: `MLC-B010`, there is none; `MLC-V001`, QNN is not installed; `MLC-V002`,
                it refuses the file; `MLC-V005`, another version of it made the file.
        """
        name = context_in(names)
        self._library = Library(soc_of(self.module))
        self._library.load(bytes(member(name)))

    def run_graph(self, graph: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of a graph by name, on inputs of its shapes; whole numbers get 32 bits.

        Raises:
            CompileError: `MLC-D001`, an input is missing or does not fit; `MLC-V002`.
        """
        assert self._library is not None, "open() comes first"
        function = find_function(self.module, graph)
        arrays = [
            array.astype(dtype_of(element_of(value))) if array.dtype.kind in "iub" else array
            for array, value in zip(arguments(function, inputs), function.args, strict=True)
        ]
        bind_symbols(function, arrays)
        given = dict(zip(argument_names(function), arrays, strict=True))
        return self._library.run(graph, given)
