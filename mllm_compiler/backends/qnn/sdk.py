"""QNN's libraries, in a child process: the one place that reaches the vendor's code."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from multiprocessing import Pipe
from pathlib import Path
from signal import Signals
from types import TracebackType
from typing import Any, Final, Self

from mllm_compiler.backends.qnn.graph import Array, ContextFacts, Graph, Node, Soc, Tensor
from mllm_compiler.errors import CompileError

BUILD: Final = "v2.51.0.260929181845"
"""The build of QAIRT that support tables and layouts are made from."""

VERSION: Final = BUILD.removeprefix("v")
"""The same as numbers: another version of the library may not load what this one made."""

CONTEXT: Final = ".context"
"""What the name of a context binary ends with."""

HOW: Final = "pip install 'mllm-compiler[qnn]'"
"""How to get the libraries."""

PACKAGE: Final = "onnxruntime-qnn"
WHEEL: Final = "2.7.0"


class Library:
    """The libraries, for one SoC; a crash of theirs is an error like any other.

    Raises:
        CompileError: `MLC-V001`, they are not installed; `MLC-V005`, in another version.
    """

    def __init__(self, soc: Soc) -> None:
        folder = check_present()
        self._line, theirs = Pipe()
        arguments = [str(theirs.fileno()), str(folder)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mllm_compiler.backends.qnn.child", *arguments],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        theirs.close()
        found = self._ask("", soc)
        if found != BUILD:
            self.close()
            raise CompileError(
                "MLC-V005",
                f"QNN {found} is installed, {BUILD} is needed",
                location="qnn",
                remedy=f"pip install {PACKAGE}=={WHEEL}",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_process"):
            self.close()

    def close(self) -> None:
        """Ends the process."""
        self._line.close()
        self._process.kill()
        self._process.wait()

    def prepare(self, graphs: Sequence[Graph]) -> bytes:
        """The context binary of some graphs.

        Raises:
            CompileError: `MLC-V002`, HTP refuses a node or a graph, in its own words.
        """
        return self._ask("prepare", list(graphs))

    def reason(self, node: Node, tensors: Mapping[str, Tensor]) -> str:
        """Why HTP does not take a node; empty where it does.

        Raises:
            CompileError: `MLC-V002`, the library crashes.
        """
        return self._ask("reason", node, dict(tensors))

    def describe(self, binary: bytes) -> ContextFacts:
        """What libQnnSystem reads in a context binary.

        Raises:
            CompileError: `MLC-V002`, it is none.
        """
        return self._ask("describe", binary)

    def load(self, binary: bytes) -> ContextFacts:
        """Loads a context binary, to run its graphs; what it says of itself.

        Raises:
            CompileError: `MLC-V002`, the library refuses it; `MLC-V005`, another version made it.
        """
        facts = self.describe(binary)
        if facts.build != BUILD:
            raise CompileError(
                "MLC-V005",
                f"QNN {facts.build} made the context binary, {BUILD} is needed",
                location="qnn",
                remedy="compile the model again",
            )
        self._ask("load", binary)
        return facts

    def run(self, graph: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of a graph of the loaded context, from HTP's emulator.

        Raises:
            CompileError: `MLC-V002`.
        """
        return self._ask("run", graph, dict(inputs))

    def _ask(self, name: str, *arguments: Any) -> Any:
        try:
            self._line.send((name, arguments))
            good, answer = self._line.recv()
        except (EOFError, OSError) as fault:
            raise self._refused(f"the library ended with {self._ending()}", "qnn") from fault
        if good:
            return answer
        words, location = answer
        raise self._refused(words, location or "qnn")

    def _ending(self) -> str:
        status = self._process.wait()
        return Signals(-status).name if status < 0 else f"status {status}"

    def _refused(self, words: str, location: str) -> CompileError:
        return CompileError(
            "MLC-V002",
            f"QNN refuses it: {words}",
            location=location,
            remedy="mllmc explain MODEL --target qnn",
        )


def context_in(names: Iterable[str]) -> str:
    """The member of a bundle that is a context binary.

    Raises:
        CompileError: `MLC-B010`, there is none.
    """
    for name in names:
        if name.endswith(CONTEXT):
            return name
    raise CompileError(
        "MLC-B010",
        "the bundle has no context binary for QNN, only sources of one",
        location="qnn",
        remedy="compile the model again where mllmc doctor lists onnxruntime-qnn",
    )


def check_present() -> Path:
    """The folder of the libraries.

    Raises:
        CompileError: `MLC-V001`, they are not installed.
    """
    folder = libraries()
    if folder is None:
        raise CompileError("MLC-V001", "QNN is not installed", location="qnn", remedy=HOW)
    return folder


def libraries() -> Path | None:
    """The folder of the libraries; None where they are not installed."""
    spec = find_spec("onnxruntime_qnn")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def qnn_version() -> str | None:
    """The version of the package; None where it is not installed."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return None


__all__ = [
    "BUILD",
    "CONTEXT",
    "HOW",
    "VERSION",
    "Library",
    "check_present",
    "context_in",
    "libraries",
    "qnn_version",
]
