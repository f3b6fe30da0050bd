"""The exact bytes of the archive around its members: headers, padding, central directory, end.

Everything here is computed from names, sizes and checksums, so that a writer lays out what a
verifier can recompute and compare byte by byte. `docs/bundle.md` explains each field.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

ALIGNMENT = 4096
"""Every member's data starts on a multiple of this."""

LIMIT = (1 << 32) - 1
"""A bundle is smaller than this: format 1 has no zip64 records."""

EXTRA_ID = 0x4D4C
VERSION = 20
FLAGS = 0x0800
DOS_DATE = 0x0021

LOCAL = struct.Struct("<4s5H3I2H")
EXTRA = struct.Struct("<2H")
CENTRAL = struct.Struct("<4s6H3I5H2I")
END = struct.Struct("<4s4H2IH")

LOCAL_MAGIC = b"PK\x03\x04"
CENTRAL_MAGIC = b"PK\x01\x02"
END_MAGIC = b"PK\x05\x06"


@dataclass(frozen=True)
class Member:
    """What the layout needs to know of a member."""

    name: str
    size: int
    crc32: int


@dataclass(frozen=True)
class Region:
    """A run of bytes that holds no member's data, and how messages call it."""

    name: str
    offset: int
    content: bytes


@dataclass(frozen=True)
class Placed:
    """A member and where its header and its data start."""

    member: Member
    header: int
    data: int

    @property
    def end(self) -> int:
        """The first byte behind the data."""
        return self.data + self.member.size


def padding_at(header: int, name: str) -> int:
    """How many zero bytes bring the data behind a header at `header` to its boundary."""
    return -(header + LOCAL.size + len(name.encode()) + EXTRA.size) % ALIGNMENT


def place(members: Iterable[Member]) -> list[Placed]:
    """Where each member lies, in the order given."""
    placed: list[Placed] = []
    at = 0
    for member in members:
        head = LOCAL.size + len(member.name.encode()) + EXTRA.size
        data = at + head + padding_at(at, member.name)
        placed.append(Placed(member, at, data))
        at = data + member.size
    return placed


def local_header(placed: Placed) -> bytes:
    """The local header of a member with its name and the head of its extra field."""
    member, name = placed.member, placed.member.name.encode()
    padding = padding_at(placed.header, member.name)
    fixed = LOCAL.pack(
        LOCAL_MAGIC,
        VERSION,
        FLAGS,
        0,
        0,
        DOS_DATE,
        member.crc32,
        member.size,
        member.size,
        len(name),
        EXTRA.size + padding,
    )
    return fixed + name + EXTRA.pack(EXTRA_ID, padding)


def central_entry(placed: Placed) -> bytes:
    """The member's entry of the central directory."""
    member, name = placed.member, placed.member.name.encode()
    fixed = CENTRAL.pack(
        CENTRAL_MAGIC,
        VERSION,
        VERSION,
        FLAGS,
        0,
        0,
        DOS_DATE,
        member.crc32,
        member.size,
        member.size,
        len(name),
        0,
        0,
        0,
        0,
        0,
        placed.header,
    )
    return fixed + name


def central_directory(placed: list[Placed]) -> bytes:
    """The whole central directory."""
    return b"".join(central_entry(member) for member in placed)


def end_record(count: int, size: int, offset: int) -> bytes:
    """The end record of `count` members whose directory of `size` bytes starts at `offset`."""
    return END.pack(END_MAGIC, 0, 0, count, count, size, offset, 0)


def regions(placed: list[Placed]) -> Iterator[Region]:
    """Every run of bytes that is not a member's data, in the order of the file."""
    for member in placed:
        yield from header_regions(member)
    directory = central_directory(placed)
    at = placed[-1].end if placed else 0
    yield Region("central directory", at, directory)
    end = end_record(len(placed), len(directory), at)
    yield Region("end record", at + len(directory), end)


def header_regions(placed: Placed) -> Iterator[Region]:
    """The two regions in front of a member's data."""
    name, header = placed.member.name, local_header(placed)
    yield Region(f"local header of member '{name}'", placed.header, header)
    start = placed.header + len(header)
    yield Region(f"padding before member '{name}'", start, bytes(placed.data - start))


def total_size(placed: list[Placed]) -> int:
    """The size of the whole archive."""
    directory = sum(CENTRAL.size + len(member.member.name.encode()) for member in placed)
    return (placed[-1].end if placed else 0) + directory + END.size
