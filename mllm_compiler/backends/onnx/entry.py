"""How the tables of exporters are written: one typed function an op class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from xdsl.ir import Operation

from mllm_compiler.backends.onnx.builder import Builder, Value

OpT = TypeVar("OpT", bound=Operation)

Exporter = Callable[[Operation, Builder], Sequence[Value]]
"""Writes the nodes of an op and answers with the values of its results."""

Inputs = Sequence[Value]
"""The ONNX values of an op's operands."""


def one(
    kind: type[OpT], write: Callable[[OpT, Builder, Inputs], Value]
) -> tuple[type[Operation], Exporter]:
    """The table entry of an op with one result."""

    def exporter(op: Operation, b: Builder) -> Sequence[Value]:
        return (write(cast(OpT, op), b, [b[v] for v in op.operands]),)

    return kind, exporter


def several(
    kind: type[OpT], write: Callable[[OpT, Builder, Inputs], Sequence[Value]]
) -> tuple[type[Operation], Exporter]:
    """The table entry of an op with several results."""

    def exporter(op: Operation, b: Builder) -> Sequence[Value]:
        return write(cast(OpT, op), b, [b[v] for v in op.operands])

    return kind, exporter
