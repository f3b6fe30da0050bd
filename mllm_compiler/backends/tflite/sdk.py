"""LiteRT: the one place that touches the vendor's library."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllm_compiler.errors import CompileError

Array = NDArray[np.generic]


class Interpreter:
    """LiteRT's interpreter over a file; its constants stay in the file, mapped.

    Args:
        file: The bytes of a `.tflite`.
        threads: Of the interpreter.

    Raises:
        CompileError: `MLC-V001`, LiteRT is not installed; `MLC-V002`, it refuses the file.
    """

    def __init__(self, file: memoryview, *, threads: int = 1) -> None:
        check_installed()
        try:
            litert: Any = import_module("ai_edge_litert.interpreter")
        except ImportError as fault:
            raise _absent() from fault
        # Constants behind the FlatBuffer are found by their place in a file, never in memory.
        with NamedTemporaryFile(suffix=".tflite") as copy:
            copy.write(file)
            copy.flush()
            try:
                made = litert.Interpreter(model_path=copy.name, num_threads=threads)
                made.allocate_tensors()
            except (RuntimeError, ValueError) as fault:
                raise _refused(fault) from fault
        self._interpreter: Any = made

    def run(self, signature: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of a signature by name.

        Raises:
            CompileError: `MLC-V002`, LiteRT refuses the inputs.
        """
        try:
            runner = self._interpreter.get_signature_runner(signature)
            found: dict[str, Array] = runner(**inputs)
        except (RuntimeError, ValueError) as fault:
            raise _refused(fault) from fault
        return found


def litert_version() -> str | None:
    """The version of LiteRT; None where it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ai-edge-litert")
    except PackageNotFoundError:
        return None


def check_installed() -> str:
    """The version of LiteRT.

    Raises:
        CompileError: `MLC-V001`, it is not installed.
    """
    found = litert_version()
    if found is None:
        raise _absent()
    return found


def _absent() -> CompileError:
    remedy = "pip install 'mllm-compiler[tflite]'"
    return CompileError("MLC-V001", "LiteRT is not installed", location="tflite", remedy=remedy)


def _refused(fault: Exception) -> CompileError:
    words = str(fault).strip().splitlines()
    return CompileError(
        "MLC-V002",
        f"LiteRT refuses it: {words[0] if words else type(fault).__name__}",
        location="tflite",
        remedy="mllmc explain MODEL --target tflite; the file may need a newer LiteRT",
    )


__all__ = ["Interpreter", "check_installed", "litert_version"]
