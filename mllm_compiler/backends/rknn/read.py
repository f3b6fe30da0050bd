"""Reads a `.rknn` file: which operators it has, and which of them the NPU runs.

The file is a header of 64 bytes, a FlatBuffer, and JSON. Its schema is not published; the slots
below are those of format 6, which the toolkit writes for all chips of the support table.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from flatbuffers import encode, number_types, packer
from flatbuffers.table import Table

from mllm_compiler.errors import CompileError

MAGIC: Final = b"RKNN"
FORMAT: Final = 6
HEADER: Final = 64

GRAPHS, TARGET = 8, 20
"""Slots of the model, as offsets in its table of fields."""

TENSORS, NODES = 4, 6
"""Slots of a graph."""

TYPE, NAME, UNIT, INPUTS, OUTPUTS = 6, 8, 10, 12, 14
"""Slots of a node."""

ELEMENT: Final = 4
"""The slot of a tensor's element type."""

CPU, NPU = 0, 2
"""Units that run a node."""

WHOLE: Final = frozenset({6, 7})
"""ONNX's numbers of i32 and i64."""


@dataclass(frozen=True)
class Node:
    """An operator of a file.

    Attributes:
        type: What the toolkit calls it: `Conv`, `exSDPAttention` ...
        name: Its name; it begins with that of an ONNX node.
        unit: What runs it, `CPU` or `NPU`.
        elements: The element types of what it reads first and of what it makes, as ONNX's numbers.
    """

    type: str
    name: str
    unit: int
    elements: tuple[int, ...]

    @property
    def counts(self) -> bool:
        """Whether it reads or makes whole numbers."""
        return not WHOLE.isdisjoint(self.elements)


@dataclass(frozen=True)
class RknnFile:
    """What a file says of itself.

    Attributes:
        soc: The chip that it is for.
        nodes: Its operators in order.
    """

    soc: str
    nodes: tuple[Node, ...]


def read_rknn(raw: bytes, where: str) -> RknnFile:
    """Reads a file.

    Raises:
        CompileError: `MLC-V002`, it is no file of format 6.
    """
    version, size = struct.unpack_from("<QQ", raw, 8) if len(raw) > HEADER else (0, 0)
    if raw[:4] != MAGIC or version != FORMAT or HEADER + size > len(raw):
        raise CompileError(
            "MLC-V002",
            f"Rockchip's toolkit wrote a file that is not of format {FORMAT}",
            location=where,
            remedy="use the toolkit's version that docs/rknn.md names",
        )
    held = bytearray(raw[HEADER : HEADER + size])
    model = _table(held, encode.Get(packer.uoffset, held, 0))
    graphs = list(_tables(model, GRAPHS))
    return RknnFile(_text(model, TARGET), tuple(n for graph in graphs for n in _nodes(graph)))


def _nodes(graph: Table) -> Iterator[Node]:
    elements = [_byte(tensor, ELEMENT) for tensor in _tables(graph, TENSORS)]
    for node in _tables(graph, NODES):
        used = [*_numbers(node, INPUTS)[:1], *_numbers(node, OUTPUTS)[:1]]
        yield Node(
            type=_text(node, TYPE),
            name=_text(node, NAME),
            unit=_byte(node, UNIT),
            elements=tuple(elements[at] for at in used if 0 <= at < len(elements)),
        )


def _table(raw: Any, at: int) -> Table:
    return Table(raw, at)


def _tables(table: Table, slot: int) -> Iterator[Table]:
    """The tables of a vector."""
    offset = table.Offset(slot)
    if not offset:
        return
    start = table.Vector(offset)
    for at in range(table.VectorLen(offset)):
        yield _table(table.Bytes, table.Indirect(start + 4 * at))


def _numbers(table: Table, slot: int) -> list[int]:
    """A vector of whole numbers of 32 bits."""
    offset = table.Offset(slot)
    if not offset:
        return []
    count, start = table.VectorLen(offset), table.Vector(offset)
    raw: Any = table.Bytes
    return list(struct.unpack_from(f"<{count}i", raw, start))


def _byte(table: Table, slot: int) -> int:
    offset = table.Offset(slot)
    flags: Any = number_types.Int8Flags
    return int(table.Get(flags, offset + table.Pos)) if offset else 0


def _text(table: Table, slot: int) -> str:
    offset = table.Offset(slot)
    return table.String(offset + table.Pos).decode() if offset else ""
