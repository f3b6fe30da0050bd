"""Writes tables of TFLite's schema as a FlatBuffer, from plain values by field.

The schema is data (`schema.toml`), so that a file can be written where LiteRT is not installed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, cast

import flatbuffers
import numpy as np

IDENTIFIER: Final = b"TFL3"

SCALARS: Final = {
    "bool": "Bool",
    "i8": "Int8",
    "u8": "Uint8",
    "i32": "Int32",
    "u32": "Uint32",
    "i64": "Int64",
    "u64": "Uint64",
    "f32": "Float32",
}
"""What the library calls the scalar kinds."""

ARRAYS: Final = {
    "i8": np.int8,
    "u8": np.uint8,
    "i32": np.int32,
    "u32": np.uint32,
    "i64": np.int64,
    "f32": np.float32,
}
"""The elements of vectors of scalars."""

ALIGNMENT: Final = 16
"""Bytes that a buffer inside the file is aligned to."""

Table = Mapping[str, Any]
"""The values of a table by field; a nested table is one too, a union a pair (table name, table)."""


@dataclass(frozen=True)
class Field:
    """A field of a table: its slot, name, kind, and the value that need not be written."""

    slot: int
    name: str
    kind: str
    default: int


@dataclass(frozen=True)
class Schema:
    """The part of the schema that is written.

    Attributes:
        tables: The fields of each table, options among them.
        options: The number of each kind of options.
        operators: The number and the options of each operator.
        elements: The number of each element type.
    """

    tables: Mapping[str, Sequence[Field]]
    options: Mapping[str, int]
    operators: Mapping[str, tuple[int, str]]
    elements: Mapping[str, int]


@cache
def schema() -> Schema:
    """The schema of `schema.toml`."""
    text = files("mllm_compiler.backends.tflite").joinpath("schema.toml").read_text("utf-8")
    data = tomllib.loads(text)
    tables = {name: _fields(text) for name, text in data["tables"].items()}
    tables |= {name: _fields(text) for name, (_, text) in data["options"].items()}
    return Schema(
        tables=tables,
        options={name: number for name, (number, _) in data["options"].items()},
        operators={
            name: (number, options) for name, (number, options) in data["operators"].items()
        },
        elements=data["elements"],
    )


def written(table: str, values: Table) -> bytes:
    """A file whose root is a table."""
    builder: Any = flatbuffers.Builder(1 << 16)
    root = _write(builder, table, values)
    builder.Finish(root, file_identifier=IDENTIFIER)
    return bytes(builder.Output())


def _fields(text: str) -> list[Field]:
    fields: list[Field] = []
    for slot, part in enumerate(text.split(", ") if text else ()):
        if part == "_":
            continue
        name, _, kind = part.partition(": ")
        kind, _, default = kind.partition(" = ")
        fields.append(Field(slot, name, kind, int(default or 0)))
    return fields


def _write(builder: Any, table: str, values: Table) -> int:
    """Writes a table behind what it refers to; answers with its offset."""
    fields = schema().tables[table]
    unknown = values.keys() - {field.name for field in fields}
    if unknown:
        raise KeyError(f"{table} has no field {sorted(unknown)}")
    given = [field for field in fields if values.get(field.name) is not None]
    parts = {
        field.slot: _part(builder, field, values[field.name])
        for field in given
        if field.kind not in SCALARS
    }
    builder.StartObject(1 + max((field.slot for field in fields), default=-1))
    for field in given:
        if field.kind in SCALARS:
            value = values[field.name]
            put = getattr(builder, f"Prepend{SCALARS[field.kind]}Slot")
            put(field.slot, value, field.default)
        else:
            builder.PrependUOffsetTRelativeSlot(field.slot, parts[field.slot], 0)
    return int(builder.EndObject())


def _part(builder: Any, field: Field, value: object) -> int:
    """Writes a string, a vector or a nested table."""
    kind = field.kind
    if kind == "string":
        return int(builder.CreateString(value))
    if not kind.startswith("["):
        nested = cast("tuple[str, Table]", value) if kind == "Options" else (kind, value)
        return _write(builder, nested[0], cast(Table, nested[1]))
    element = kind[1:-1]
    if element == "u8":
        return _bytes(builder, cast(bytes, value))
    if element in ARRAYS:
        array = np.ascontiguousarray(cast("Sequence[int]", value), ARRAYS[element])
        return int(builder.CreateNumpyVector(array))
    offsets = [_write(builder, element, one) for one in cast("Sequence[Table]", value)]
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def _bytes(builder: Any, data: bytes) -> int:
    """A vector of bytes that is aligned as kernels read it."""
    builder.StartVector(1, len(data), ALIGNMENT)
    builder.head -= len(data)
    builder.Bytes[builder.head : builder.head + len(data)] = data
    return int(builder.EndVector())
