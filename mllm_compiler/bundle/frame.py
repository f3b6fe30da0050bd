"""Reads what frames the members and compares it with the layout that the manifest implies."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from mllm_compiler.bundle import layout
from mllm_compiler.bundle.manifest import MANIFEST, SIGNATURE, Manifest, member_order
from mllm_compiler.bundle.signature import SIZE
from mllm_compiler.bundle.writer import members_of
from mllm_compiler.errors import CompileError

AGAIN = "copy or compile the bundle again"


@dataclass(frozen=True)
class Head:
    """The two members that a reader needs before it may believe the rest."""

    manifest: bytes
    signature: bytes | None

    def members(self) -> list[tuple[str, bytes]]:
        """Names and contents, in the order of the file."""
        first = [(MANIFEST, self.manifest)]
        return first if self.signature is None else [*first, (SIGNATURE, self.signature)]


@dataclass(frozen=True)
class _Facts:
    """What a header claims of its member."""

    name: str
    size: int
    crc32: int


def read_head(view: memoryview, location: str) -> Head:
    """Finds manifest and signature; what stands in them is not believed yet.

    Raises:
        CompileError: `MLC-B001` not a bundle, `MLC-B002` no manifest, `MLC-B004` it was changed.
    """
    local, listed = _local_facts(view, 0), _listed_facts(view)
    if local is None and listed is None:
        raise _broken(location, "not a bundle")
    names = {facts.name for facts in (local, *(listed or [])) if facts is not None}
    if MANIFEST not in names:
        raise _missing(location, MANIFEST)
    claims = [facts for facts in (local, *(listed or [])[:1]) if facts is not None]
    manifest = _manifest(view, claims, location)
    if not _is_signed(view, len(manifest), listed):
        return Head(manifest, None)
    blank = [layout.Member(MANIFEST, len(manifest), 0), layout.Member(SIGNATURE, SIZE, 0)]
    start = layout.place(blank)[1].data
    if start + SIZE > len(view):
        raise _broken(location, f"the file ends inside member '{SIGNATURE}'")
    return Head(manifest, bytes(view[start : start + SIZE]))


def check_frame(
    view: memoryview, head: Head, manifest: Manifest, location: str
) -> list[layout.Placed]:
    """Compares every byte outside the members with the one right layout.

    Raises:
        CompileError: `MLC-B001` names the first wrong region, `MLC-B002` a missing member,
            `MLC-B003` an extra one.
    """
    names = member_order(list(manifest.members))
    records = [(name, manifest.members[name]) for name in names]
    placed = layout.place(members_of(head.members(), records))
    if len(view) != layout.total_size(placed):
        _check_names(view, [member.member.name for member in placed], location)
    for region in layout.regions(placed):
        end = region.offset + len(region.content)
        if end > len(view):
            break
        if bytes(view[region.offset : end]) != region.content:
            raise _broken(location, f"{region.name} was changed")
    if len(view) != layout.total_size(placed):
        raise _broken(location, _wrong_end(len(view), placed))
    return placed


def _manifest(view: memoryview, claims: Sequence[_Facts], location: str) -> bytes:
    """The manifest, by whichever of its two headers is right about it."""
    start, sums = layout.ALIGNMENT, {facts.crc32 for facts in claims}
    for facts in claims:
        raw = bytes(view[start : start + facts.size])
        if len(raw) == facts.size and zlib.crc32(raw) in sums:
            return raw
    size = min(facts.size for facts in claims)
    if start + size > len(view):
        raise _broken(location, f"the file ends inside member '{MANIFEST}'")
    raise CompileError(
        "MLC-B004",
        f"{MANIFEST}: bytes 0-{size - 1} were changed",
        location=location,
        remedy=AGAIN,
    )


def _is_signed(view: memoryview, manifest_size: int, listed: list[_Facts] | None) -> bool:
    """Whether either header of a second member calls it the signature."""
    local = _local_facts(view, layout.ALIGNMENT + manifest_size)
    if local is not None and local.name == SIGNATURE:
        return True
    return listed is not None and SIGNATURE in {facts.name for facts in listed[1:2]}


def _check_names(view: memoryview, expected: list[str], location: str) -> None:
    """Tells a missing or extra member by name where the directory can be read."""
    listed = _listed_facts(view)
    if listed is None:
        return
    found = [facts.name for facts in listed]
    for name in expected:
        if name not in found:
            raise _missing(location, name)
    for index, name in enumerate(found):
        if name not in expected or name in found[:index]:
            message = f"member '{name}' is not in the manifest"
            raise CompileError("MLC-B003", message, location=location, remedy=AGAIN)


def _wrong_end(size: int, placed: list[layout.Placed]) -> str:
    total = layout.total_size(placed)
    if size > total:
        return f"{size - total} bytes follow the end record"
    names = [(region.offset, region.name) for region in layout.regions(placed)]
    names += [(member.data, f"member '{member.member.name}'") for member in placed]
    inside = max(entry for entry in sorted(names) if entry[0] <= size)[1]
    return f"the file ends inside {inside}: {size} bytes of {total}"


def _local_facts(view: memoryview, at: int) -> _Facts | None:
    """What the local header at `at` claims, or nothing where there is none."""
    fixed = view[at : at + layout.LOCAL.size]
    if len(fixed) < layout.LOCAL.size:
        return None
    fields = layout.LOCAL.unpack(fixed)
    start = at + layout.LOCAL.size
    name = _text(view[start : start + min(fields[9], layout.ALIGNMENT)])
    if fields[0] != layout.LOCAL_MAGIC and name not in (MANIFEST, SIGNATURE):
        return None
    return _Facts(name, fields[8], fields[6])


def _listed_facts(view: memoryview) -> list[_Facts] | None:
    """What the central directory claims, or nothing where it cannot be read."""
    if len(view) < layout.END.size:
        return None
    fields = layout.END.unpack(view[-layout.END.size :])
    count, size, offset = fields[4], fields[5], fields[6]
    if fields[0] != layout.END_MAGIC or offset + size != len(view) - layout.END.size:
        return None
    listed: list[_Facts] = []
    at = offset
    for _ in range(count):
        try:
            entry = layout.CENTRAL.unpack_from(view, at)
        except struct.error:
            return None
        at += layout.CENTRAL.size
        listed.append(_Facts(_text(view[at : at + entry[10]]), entry[9], entry[7]))
        at += entry[10]
    return listed if listed and at == offset + size else None


def _text(raw: memoryview) -> str:
    return bytes(raw).decode("utf-8", "replace")


def _broken(location: str, message: str) -> CompileError:
    return CompileError("MLC-B001", message, location=location, remedy=AGAIN)


def _missing(location: str, name: str) -> CompileError:
    return CompileError("MLC-B002", f"member '{name}' is missing", location=location, remedy=AGAIN)
