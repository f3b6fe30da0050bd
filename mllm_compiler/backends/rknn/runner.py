"""Runs the target `rknn`: the toolkit's simulator, over what it builds of the files of a bundle.

The simulator runs only what was built in its own process, never a `.rknn` file: a graph is built
when it is first run, and stays until the runner is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from mllm_compiler.backends.rknn.sdk import Simulator, need_toolkit
from mllm_compiler.backends.runner import Array, Runner
from mllm_compiler.passes.graphs import argument_names
from mllm_compiler.reference import find_function
from mllm_compiler.reference.executor import arguments, bind_symbols

MEMBERS = "targets/rknn/"


@dataclass
class RknnRunner(Runner):
    """Runs graphs in the simulator; the module says what they take and give."""

    _folder: TemporaryDirectory[str] | None = field(default=None, init=False)
    _simulators: dict[str, Simulator] = field(default_factory=dict[str, Simulator], init=False)

    def open(self, names: Iterable[str], member: Callable[[str], memoryview]) -> None:
        """Lays out the files for the toolkit.

        Raises:
            CompileError: `MLC-V001`, the toolkit is not installed.
        """
        need_toolkit()
        self._folder = TemporaryDirectory(prefix="mllm-rknn-", ignore_cleanup_errors=True)
        for name in names:
            if not name.startswith(MEMBERS) or name.endswith(".rknn"):
                continue
            path = Path(self._folder.name) / name.removeprefix(MEMBERS)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(member(name))

    def run_graph(self, graph: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of a graph by name, on inputs of its shapes.

        Raises:
            CompileError: `MLC-D001`, an input is missing or does not fit; `MLC-V002` and
                `MLC-V003`, the toolkit refuses it or crashes.
        """
        assert self._folder is not None, "open() comes first"
        function = find_function(self.module, graph)
        arrays = arguments(function, inputs)
        bind_symbols(function, arrays)
        if graph not in self._simulators:
            simulator = need_toolkit().simulator(Path(self._folder.name), graph)
            self._simulators[graph] = simulator
        return self._simulators[graph].run(dict(zip(argument_names(function), arrays, strict=True)))

    def __del__(self) -> None:
        for simulator in self._simulators.values():
            simulator.close()
