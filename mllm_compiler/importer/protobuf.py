"""Reads an ONNX file without its large tensors, which stay where they are in the file.

A protobuf parser copies every tensor's bytes. Here the file is mapped, its messages are walked at
the level of the wire format, and the bytes of each large tensor are replaced by the `external_data`
entries that the standard has for tensors in other files: here they name the file itself. The parser
then sees a few hundred kilobytes, and a weight inside the protobuf is mapped like any other.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mllm_compiler.errors import CompileError
from mllm_compiler.importer.names import utf8_name

LARGE: Final = 1024
"""Bytes from which a tensor is left in the file."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DEEPEST: Final = 100

_MESSAGES: Final[dict[str, dict[int, str]]] = {
    "Model": {7: "Graph", 20: "Training", 25: "Function"},
    "Training": {1: "Graph", 2: "Graph"},
    "Function": {7: "Node"},
    "Graph": {1: "Node", 5: "Tensor", 15: "Sparse"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph", 22: "Sparse", 23: "Sparse"},
    "Sparse": {1: "Tensor", 2: "Tensor"},
}
"""Fields that may hold a tensor, by message."""

_DATA_TYPE, _FLOAT_DATA, _RAW_DATA, _DOUBLE_DATA = 2, 4, 9, 10
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14
_FLOAT, _DOUBLE = 1, 11


@dataclass(frozen=True)
class _Field:
    number: int
    wire: int
    start: int
    """Offset of the tag."""
    body: int
    """Offset of the value (of a length-delimited field: of its bytes)."""
    end: int
    value: int
    """The value of a varint."""


class _BrokenError(Exception):
    """The bytes at an offset are no protobuf field."""

    def __init__(self, offset: int, needed: int = 0) -> None:
        super().__init__(offset)
        self.offset = offset
        self.needed = needed


def without_tensors(file: Path) -> bytes:
    """The model in `file` as protobuf bytes whose large tensors point back into `file`.

    Raises:
        CompileError: The file cannot be read, is empty, truncated or no ONNX model.
    """
    try:
        if not file.is_file() and file.exists():
            raise _not_a_model(file, "not a regular file", b"")
        with file.open("rb") as source:
            size = source.seek(0, 2)
            if size == 0:
                raise _not_a_model(file, "the file is empty", b"")
            with mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _strip(file, data)
    except OSError as error:
        raise CompileError(
            "MLC-I003",
            f"the file cannot be read: {error.strerror}",
            location=str(file),
            remedy="check the path",
        ) from error


def _strip(file: Path, data: mmap.mmap) -> bytes:
    head = data[:64]
    try:
        parts = list(_message(data, 0, len(data), "Model", utf8_name(file.name), 0))
    except _BrokenError as broken:
        if broken.needed > len(data) and head[0] == 0x08:
            raise CompileError(
                "MLC-I002",
                f"the file is truncated: {broken.needed} bytes are needed, it has {len(data)}",
                location=str(file),
                remedy="copy or download it again",
            ) from None
        message = f"not an ONNX protobuf: byte {broken.offset} starts no field"
        raise _not_a_model(file, message, head) from None
    return b"".join(parts)


def _not_a_model(file: Path, message: str, head: bytes) -> CompileError:
    remedy = "give an .onnx file or a model.toml"
    if head.startswith(b"version https://git-lfs"):
        message, remedy = "the file is a Git LFS pointer, not the model", "run 'git lfs pull'"
    return CompileError("MLC-I001", message, location=str(file), remedy=remedy)


def _message(
    data: mmap.mmap, start: int, end: int, kind: str, name: str, depth: int
) -> Iterator[bytes]:
    """The pieces of a message, its large tensors replaced."""
    if depth > _DEEPEST:
        raise _BrokenError(start)
    if kind == "Tensor":
        yield from _tensor(data, start, end, name)
        return
    inner = _MESSAGES[kind]
    kept = start
    for field in _fields(data, start, end):
        child = inner.get(field.number)
        if child is None or field.wire != _BYTES or field.end - field.body < LARGE:
            continue
        yield data[kept : field.start]
        kept = field.end
        body = b"".join(_message(data, field.body, field.end, child, name, depth + 1))
        yield _tag(field.number, _BYTES) + _varint(len(body)) + body
    yield data[kept:end]


def _tensor(data: mmap.mmap, start: int, end: int, name: str) -> Iterator[bytes]:
    fields = list(_fields(data, start, end))
    dtype = next((f.value for f in fields if f.number == _DATA_TYPE), 0)
    plain = {_RAW_DATA}
    plain |= {_FLOAT_DATA} if dtype == _FLOAT else set()
    plain |= {_DOUBLE_DATA} if dtype == _DOUBLE else set()
    large = [
        f for f in fields if f.number in plain and f.wire == _BYTES and f.end - f.body >= LARGE
    ]
    if len(large) != 1:
        # Several pieces of one field would have to be joined: leave that to the parser.
        yield data[start:end]
        return
    yield data[start : large[0].start]
    yield data[large[0].end : end]
    entries = {
        "location": name,
        "offset": str(large[0].body),
        "length": str(large[0].end - large[0].body),
    }
    for key, value in entries.items():
        entry = b"".join(_text(n, s) for n, s in ((1, key), (2, value)))
        yield _tag(_EXTERNAL_DATA, _BYTES) + _varint(len(entry)) + entry
    yield _tag(_DATA_LOCATION, _VARINT) + _varint(1)


def _fields(data: mmap.mmap, start: int, end: int) -> Iterator[_Field]:
    at = start
    while at < end:
        tag, body = _read_varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        value = 0
        if number == 0:
            raise _BrokenError(at)
        if wire == _VARINT:
            value, after = _read_varint(data, body, end)
        elif wire == _FIXED64:
            after = body + 8
        elif wire == _FIXED32:
            after = body + 4
        elif wire == _BYTES:
            length, body = _read_varint(data, body, end)
            after = body + length
        else:
            raise _BrokenError(at)
        if after > end:
            raise _BrokenError(at, after)
        yield _Field(number, wire, at, body, after, value)
        at = after


def _read_varint(data: mmap.mmap, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise _BrokenError(at)
    raise _BrokenError(at, at + 1)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _tag(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def _text(number: int, text: str) -> bytes:
    raw = text.encode()
    return _tag(number, _BYTES) + _varint(len(raw)) + raw
