"""Where the toolkit put the operators of a file, against what the support table says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mllm_compiler.backends.rknn.read import CPU, Node, RknnFile
from mllm_compiler.errors import CompileError
from mllm_compiler.hal import Soc

PORTS: Final = ("InputOperator", "OutputOperator")
"""Nodes that compute nothing: where data comes in and goes out."""


def check_placement(file: RknnFile, soc: Soc, graph: str) -> None:
    """Refuses a file with an operator on the CPU that the table has on the NPU.

    Raises:
        CompileError: `MLC-V004`, the first one by name.
    """
    if not soc.measured:
        return
    for node in on_cpu(file):
        if node.counts or node.type in (*soc.host, *soc.either):
            continue
        raise CompileError(
            "MLC-V004",
            f"the toolkit gives '{node.type}' to the CPU of the {soc.name}, where the support "
            "table has the NPU",
            location=f"{graph}: {node.name}",
            remedy="change the op in the model, or correct hal/targets/rknn/support.toml",
        )


def on_cpu(file: RknnFile) -> Iterator[Node]:
    """The operators that the CPU runs."""
    return (n for n in file.nodes if n.unit == CPU and n.type not in PORTS)
