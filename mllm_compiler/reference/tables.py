"""The meanings of ops: a table a dialect, imported when an op of that dialect is first executed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from xdsl.ir import Operation

if TYPE_CHECKING:
    from mllm_compiler.reference.executor import Meaning

TABLES = {
    "mllm": ("mllm_compiler.reference.mllm", "MEANINGS"),
    "onnx": ("mllm_compiler.reference.onnx", "MEANINGS"),
    "func": ("mllm_compiler.reference.calls", "MEANINGS"),
    "cpu": ("mllm_compiler.reference.cpu", "MEANINGS"),
    "qnn": ("mllm_compiler.reference.qnn", "MEANINGS"),
    "tfl": ("mllm_compiler.reference.tfl", "MEANINGS"),
    "neuron": ("mllm_compiler.reference.neuron", "MEANINGS"),
    "rknn": ("mllm_compiler.reference.rknn", "MEANINGS"),
}
"""The module and the name of each dialect's table; a table maps op names to meanings."""


@cache
def meanings(dialect: str) -> Mapping[str, Meaning]:
    """The table of a dialect; empty for a dialect without meanings."""
    if dialect not in TABLES:
        return {}
    module, attribute = TABLES[dialect]
    table: Mapping[str, Meaning] = getattr(import_module(module), attribute)
    return table


def meaning_of(op: Operation) -> Meaning | None:
    """The meaning of an op, None where it has none."""
    return meanings(op.name.partition(".")[0]).get(op.name)
