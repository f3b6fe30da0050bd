"""Calibration inputs of graphs on disk: `GRAPH/NAME.npz`, a tensor for each input."""

from __future__ import annotations

from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from mllm_compiler.errors import CompileError
from mllm_compiler.reference import Array


def graph_inputs(folder: str, graph: str) -> list[dict[str, Array]]:
    """The samples of a graph, in the order of their names; none where it has no folder.

    Raises:
        CompileError: `MLC-Q003`, a file is no `.npz` of plain arrays.
    """
    if not folder:
        return []
    return [read_arrays(path) for path in sorted((Path(folder) / graph).glob("*.npz"))]


def needed_inputs(folder: str, graph: str) -> list[dict[str, Array]]:
    """The samples of a graph, of which there must be one.

    Raises:
        CompileError: `MLC-Q002`, there is none; `MLC-Q003`, a file is no `.npz` of plain arrays.
    """
    inputs = graph_inputs(folder, graph)
    if inputs:
        return inputs
    raise CompileError(
        "MLC-Q002",
        "the recipe needs calibration data and there is none",
        location=graph,
        remedy="name a folder of samples with --data",
    )


def read_arrays(path: Path) -> dict[str, Array]:
    """The tensors of a file by name.

    Raises:
        CompileError: `MLC-Q003`, it is no `.npz` of plain arrays.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, BadZipFile, EOFError) as fault:
        raise CompileError(
            "MLC-Q003",
            "not an .npz file of plain arrays",
            location=str(path),
            remedy="write it with numpy.savez, an array for each input",
        ) from fault
