"""`manifest.json`: what a bundle holds, typed, in canonical form (RFC 8785)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import rfc8785

from mllm_compiler import __version__
from mllm_compiler.bundle.typed_json import SPARSE, ShapeError, decode, encode
from mllm_compiler.errors import CompileError

FORMAT = 1
"""The newest bundle format that this version reads, and the one that it writes."""

ABI = 1
"""The runtime interface that programs are compiled for."""

MIN_RUNTIME = "0.1"

MANIFEST = "manifest.json"
SIGNATURE = "signature"

PIECE = 1 << 20
"""Members are digested in pieces of this many bytes."""


@dataclass(frozen=True, kw_only=True)
class Producer:
    """The program that wrote the bundle."""

    name: str = "mllm-compiler"
    version: str = __version__


@dataclass(frozen=True, kw_only=True)
class Compatibility:
    """What a reader must have."""

    abi: int = ABI
    min_runtime: str = MIN_RUNTIME
    soc: tuple[str, ...] = ()
    sdk: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, kw_only=True)
class TensorRecord:
    """An input or output of an entry; a dimension is a number or an expression over symbols."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True, kw_only=True)
class EntryRecord:
    """A graph that can be run by name."""

    role: str
    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]


@dataclass(frozen=True, kw_only=True)
class Topology:
    """Which operations an entry is made of: their digest in order, and how many of each."""

    sha256: str
    ops: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class MemberRecord:
    """Size and digests of a member; `sha256` is over the raw digests of the pieces."""

    size: int
    crc32: str
    sha256: str
    pieces: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class WeightRecord:
    """A weight and where it lies; `digest` is of the source's bytes, before packing."""

    name: str
    digest: str
    member: str
    offset: int
    size: int
    dtype: str
    shape: tuple[int, ...]
    layout: str


@dataclass(frozen=True, kw_only=True)
class BufferRecord:
    """A part of the arena while it is in use, from the stage `first` to the stage `last`."""

    name: str
    offset: int
    size: int
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class SpanRecord:
    """The stages of a graph; stages of all graphs are counted on."""

    graph: str
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class BankRecord:
    """The part of the arena that lies in a bank."""

    name: str
    offset: int
    size: int


@dataclass(frozen=True, kw_only=True)
class PlanRecord:
    """The memory plan: lower bound and size in bytes, gap as a fraction of the bound.

    Without banks, the arena is one memory. `overlaps` are graphs that may run at the same time: the
    graphs of each side.
    """

    bound: int = 0
    plan: int = 0
    gap: float = 0.0
    buffers: tuple[BufferRecord, ...] = ()
    graphs: tuple[SpanRecord, ...] = ()
    banks: tuple[BankRecord, ...] = field(default=(), metadata={SPARSE: True})
    overlaps: tuple[tuple[tuple[str, ...], ...], ...] = field(default=(), metadata={SPARSE: True})


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The signed root of a bundle."""

    name: str
    targets: tuple[str, ...]
    entries: Mapping[str, EntryRecord]
    topology: Mapping[str, Topology] = field(default_factory=dict[str, Topology])
    weights: tuple[WeightRecord, ...] = ()
    plan: PlanRecord = field(default_factory=PlanRecord)
    members: Mapping[str, MemberRecord] = field(default_factory=dict[str, MemberRecord])
    format: int = FORMAT
    producer: Producer = field(default_factory=Producer)
    compatibility: Compatibility = field(default_factory=Compatibility)

    def to_bytes(self) -> bytes:
        """The canonical JSON."""
        return canonical(encode(self))

    def with_members(self, members: Mapping[str, MemberRecord]) -> Manifest:
        """The same manifest over other members."""
        return replace(self, members=dict(members))


def canonical(value: object) -> bytes:
    """Canonical JSON (RFC 8785) of a value."""
    return rfc8785.dumps(cast("dict[str, str]", encode(value)))


def member_order(names: list[str]) -> list[str]:
    """The order in which members other than manifest and signature stand in the file."""
    return sorted(names, key=lambda name: name.encode())


def parse_manifest(raw: bytes, location: str) -> Manifest:
    """Reads and checks a manifest whose bytes are already believed.

    Raises:
        CompileError: `MLC-B008` a newer format, `MLC-B009` another runtime, `MLC-B013` not
            canonical or not of the documented shape.
    """
    try:
        value: object = json.loads(raw)
    except (ValueError, RecursionError) as fault:
        raise _misread(location, "not JSON") from fault
    _check_format(value, location)
    try:
        manifest = decode(Manifest, value)
    except ShapeError as fault:
        raise _misread(location, str(fault)) from fault
    if manifest.to_bytes() != raw:
        raise _misread(location, "not canonical JSON")
    for name, record in manifest.members.items():
        if not _is_sound(name, record):
            raise _misread(location, f"'members.{name}' contradicts itself")
    _check_compatibility(manifest.compatibility, location)
    return manifest


def _is_sound(name: str, record: MemberRecord) -> bool:
    """Whether a member's name stays inside the bundle and its record fits its size."""
    parts = name.split("/")
    if name in (MANIFEST, SIGNATURE) or "\\" in name or any(p in ("", ".", "..") for p in parts):
        return False
    if not 0 <= record.size < 1 << 32 or len(record.pieces) != -(-record.size // PIECE):
        return False
    return len(record.crc32) == 8 and all(digit in "0123456789abcdef" for digit in record.crc32)


def _check_format(value: object, location: str) -> None:
    found = cast("dict[str, object]", value).get("format") if isinstance(value, dict) else None
    if type(found) is not int or found < 1:
        raise _misread(location, "'format' is missing")
    if found > FORMAT:
        raise CompileError(
            "MLC-B008",
            f"made by a newer version: format {found}, this version reads up to {FORMAT}",
            location=location,
            remedy="upgrade mllm-compiler",
        )


def _check_compatibility(block: Compatibility, location: str) -> None:
    remedy = "upgrade the runtime, or compile again with this version"
    if block.abi > ABI:
        text = f"needs runtime interface {block.abi}, this runtime has {ABI}"
        raise CompileError("MLC-B009", text, location=location, remedy=remedy)
    if _version(block.min_runtime) > _version(__version__):
        text = f"needs runtime {block.min_runtime} or newer, this is {__version__}"
        raise CompileError("MLC-B009", text, location=location, remedy=remedy)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in text.split("."))


def _misread(location: str, message: str) -> CompileError:
    return CompileError(
        "MLC-B013",
        f"manifest.json: {message}",
        location=location,
        remedy="compile the model again",
    )
