"""LiteRT as a device of the C runtime: it runs the functions of a bundle's `.tflite`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mllm_compiler.backends.tflite.sdk import Interpreter

Array = NDArray[np.generic]

SDK: Final = ("ai-edge-litert", "2.3")
"""The library, and the least version that reads what is emitted."""

MEMBER: Final = "targets/tflite/model.tflite"


@dataclass
class TfliteDevice:
    """Functions of a file by name; a function has no names for its arguments and results.

    Attributes:
        file: The bytes of a `.tflite`.
        threads: Of the interpreter.
    """

    file: memoryview
    threads: int = 1
    _interpreter: Interpreter | None = field(default=None, init=False)

    def prepare(self, name: str) -> Callable[[Sequence[Array]], Sequence[Array]]:
        """The function of a name.

        Raises:
            CompileError: `MLC-V001`, LiteRT is not installed; `MLC-V002`, it refuses the file.
        """
        if self._interpreter is None:
            self._interpreter = Interpreter(self.file, threads=self.threads)
        return partial(self._run, self._interpreter, name)

    def _run(self, interpreter: Interpreter, name: str, arrays: Sequence[Array]) -> Sequence[Array]:
        results = interpreter.run(name, {f"arg{i}": array for i, array in enumerate(arrays)})
        return [results[f"result{i}"] for i in range(len(results))]
