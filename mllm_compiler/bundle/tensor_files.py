"""Arrays by name in `.npz` files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from mllm_compiler.bundle.files import atomic_output, reading
from mllm_compiler.errors import CompileError

Array = NDArray[np.generic]


def read_tensors(path: Path) -> dict[str, Array]:
    """The arrays of an `.npz` file.

    Raises:
        CompileError: `MLC-U010`, it is none; `MLC-U005`, it cannot be read.
    """
    with reading(path):
        try:
            with np.load(path, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in cast("Mapping[str, Array]", arrays)}
        except (OSError, MemoryError):
            raise
        except Exception as fault:  # the reader of a damaged file raises whatever it met
            raise CompileError(
                "MLC-U010",
                "not an .npz file of plain arrays",
                location=str(path),
                remedy="write it with numpy.savez, an array for each input",
            ) from fault


def write_tensors(path: Path, arrays: Mapping[str, Array]) -> None:
    """Writes arrays by name; the file appears when it is whole."""
    with atomic_output(path) as out:
        np.savez(out, allow_pickle=False, **arrays)
