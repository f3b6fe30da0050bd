"""Writes a bundle: members are streamed, digested on the way, and the file appears whole."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from mllm_compiler.bundle import layout, signature
from mllm_compiler.bundle.digests import PieceDigester
from mllm_compiler.bundle.files import atomic_output
from mllm_compiler.bundle.manifest import (
    MANIFEST,
    PIECE,
    SIGNATURE,
    Manifest,
    MemberRecord,
    member_order,
)
from mllm_compiler.errors import CompileError


@dataclass(frozen=True)
class Content:
    """A member to be: its size is known before its bytes are asked for.

    Attributes:
        name: The member's name.
        size: How many bytes `chunks` gives in all.
        chunks: Gives the bytes, in any pieces.
    """

    name: str
    size: int
    chunks: Callable[[], Iterable[bytes | memoryview]]


def content_of_bytes(name: str, raw: bytes) -> Content:
    """A member whose bytes are in memory."""
    return Content(name, len(raw), lambda: [raw])


def write_bundle(
    path: Path,
    manifest: Manifest,
    contents: Sequence[Content],
    *,
    key: Ed25519PrivateKey | None,
) -> Manifest:
    """Writes `path` and answers with the manifest that stands in it.

    Args:
        path: The bundle; it appears by a rename when it is complete.
        manifest: The manifest; its `members` are filled in here.
        contents: Every member other than manifest and signature, in any order.
        key: Signs the manifest; without one the bundle is unsigned.

    Raises:
        CompileError: `MLC-B011` too large, `MLC-U005` the file cannot be written.
    """
    by_name = {content.name: content for content in contents}
    ordered = [by_name[name] for name in member_order(list(by_name))]
    placed = layout.place(_members(manifest, ordered, signed=key is not None))
    check_size(layout.total_size(placed), path)
    with atomic_output(path) as out:
        body = placed[-len(ordered) :] if ordered else []
        records = {
            content.name: _stream(out, place.data, content)
            for content, place in zip(ordered, body, strict=True)
        }
        final = manifest.with_members(records)
        heads = [(MANIFEST, final.to_bytes())]
        if key is not None:
            heads.append((SIGNATURE, signature.sign(heads[0][1], key)))
        _write_frame(out, heads, records, ordered)
    return final


def members_of(
    heads: Iterable[tuple[str, bytes]], records: Iterable[tuple[str, MemberRecord]]
) -> list[layout.Member]:
    """The members as the layout knows them: manifest and signature, then the others."""
    first = [layout.Member(name, len(raw), zlib.crc32(raw)) for name, raw in heads]
    rest = [layout.Member(name, record.size, int(record.crc32, 16)) for name, record in records]
    return first + rest


def _members(
    manifest: Manifest, contents: Sequence[Content], *, signed: bool
) -> list[layout.Member]:
    """Members of the right sizes: a manifest's length does not depend on its digests."""
    blank = {content.name: _blank_record(content.size) for content in contents}
    heads = [layout.Member(MANIFEST, len(manifest.with_members(blank).to_bytes()), 0)]
    if signed:
        heads.append(layout.Member(SIGNATURE, signature.SIZE, 0))
    return heads + [layout.Member(content.name, content.size, 0) for content in contents]


def _blank_record(size: int) -> MemberRecord:
    zero = "0" * 64
    return MemberRecord(size=size, crc32="0" * 8, sha256=zero, pieces=(zero,) * -(-size // PIECE))


def _stream(out: BinaryIO, at: int, content: Content) -> MemberRecord:
    digester = PieceDigester()
    out.seek(at)
    for chunk in content.chunks():
        view = memoryview(chunk).cast("B")
        digester.update(view)
        out.write(view)
    if digester.size != content.size:
        raise ValueError(f"'{content.name}' gave {digester.size} bytes, not {content.size}")
    return digester.record()


def _write_frame(
    out: BinaryIO,
    heads: list[tuple[str, bytes]],
    records: dict[str, MemberRecord],
    ordered: Sequence[Content],
) -> None:
    named = [(content.name, records[content.name]) for content in ordered]
    placed = layout.place(members_of(heads, named))
    for region in layout.regions(placed):
        out.seek(region.offset)
        out.write(region.content)
    for place, (_, raw) in zip(placed, heads, strict=False):
        out.seek(place.data)
        out.write(raw)


def check_size(size: int, path: Path) -> None:
    """Refuses a bundle of more bytes than its format holds.

    Raises:
        CompileError: `MLC-B011`.
    """
    if size > layout.LIMIT:
        raise CompileError(
            "MLC-B011",
            f"{size} bytes are more than a bundle of format 1 holds",
            location=str(path),
            remedy="compile a smaller or quantised model",
        )
