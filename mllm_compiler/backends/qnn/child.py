"""The process that calls QNN's libraries: answers requests until the other side hangs up."""

from __future__ import annotations

import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from mllm_compiler.backends.qnn.graph import Array, ContextFacts, Graph, Node, Soc, Tensor
from mllm_compiler.backends.qnn.library import Context, Described, Htp, RefusedError


class Worker:
    """What can be asked, by name.

    Args:
        folder: Where the libraries lie.
        soc: The chip.
    """

    def __init__(self, folder: Path, soc: Soc) -> None:
        self._folder, self._htp = folder, Htp(folder, soc)
        self._context: Context | None = None

    def build(self) -> str:
        """The build of the library."""
        return self._htp.build

    def prepare(self, graphs: list[Graph]) -> bytes:
        """The context binary of some graphs."""
        return self._htp.prepare(graphs)

    def reason(self, node: Node, tensors: dict[str, Tensor]) -> str:
        """Why HTP does not take a node; empty where it does."""
        return self._htp.reason(node, tensors)

    def describe(self, binary: bytes) -> ContextFacts:
        """What libQnnSystem says of a context binary."""
        return Described(self._folder, binary).facts()

    def load(self, binary: bytes) -> None:
        """Loads a context binary, to run its graphs."""
        self._context = Context(self._htp, Described(self._folder, binary))

    def run(self, graph: str, inputs: dict[str, Array]) -> dict[str, Array]:
        """The outputs of a graph of the loaded context."""
        assert self._context is not None, "load() comes first"
        return self._context.run(graph, inputs)


def main(handle: int, folder: str) -> None:
    """Answers: whether it went well, and the result, or the words and the location of a refusal."""
    line: Connection[Any, Any] = Connection(handle)
    worker: Worker | None = None
    while True:
        try:
            name, arguments = line.recv()
        except EOFError:
            return
        try:
            if worker is None:
                worker = Worker(Path(folder), *arguments)
                line.send((True, worker.build()))
                continue
            line.send((True, getattr(worker, name)(*arguments)))
        except RefusedError as refused:
            line.send((False, (refused.words, refused.location)))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
