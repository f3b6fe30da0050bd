"""Opens a bundle and proves that it is what its signer made."""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mllm_compiler.bundle import layout
from mllm_compiler.bundle.digests import root
from mllm_compiler.bundle.files import reading
from mllm_compiler.bundle.frame import AGAIN, Head, check_frame, read_head
from mllm_compiler.bundle.manifest import PIECE, Manifest, parse_manifest
from mllm_compiler.bundle.signature import KEY_BYTES, signs
from mllm_compiler.errors import CompileError


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Which bundles are accepted.

    Attributes:
        trust: Public keys that are believed.
        allow_unsigned: Whether nobody need vouch for a bundle: it may be unsigned, or signed by a
            key that is not trusted.
    """

    trust: frozenset[str] = frozenset()
    allow_unsigned: bool = False


LOOK = Policy(allow_unsigned=True)
"""Accepts any signer: for commands that show a bundle and run nothing of it."""


@dataclass(frozen=True)
class Bundle:
    """An open bundle: signature, trust and layout are proven, members when they are read.

    Attributes:
        path: The file.
        manifest: The parsed manifest.
        head: Manifest and signature as bytes.
        placed: The members in the order of the file.
    """

    path: Path
    manifest: Manifest
    head: Head
    placed: tuple[layout.Placed, ...]
    _view: memoryview

    @property
    def signer(self) -> str | None:
        """The public key, in hexadecimal, of who signed it."""
        return self.head.signature[:KEY_BYTES].hex() if self.head.signature else None

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return len(self._view)

    def names(self) -> tuple[str, ...]:
        """The members that the manifest lists, in the order of the file."""
        return tuple(
            place.member.name for place in self.placed if place.member.name in self.manifest.members
        )

    def member(self, name: str) -> memoryview:
        """A member's bytes, checked.

        Raises:
            CompileError: `MLC-B004` they were changed, `MLC-B010` there is no such member.
        """
        if name not in self.manifest.members:
            raise CompileError(
                "MLC-B010",
                f"has no member '{name}'",
                location=str(self.path),
                remedy="compile for the target that needs it",
            )
        for _ in self._pieces((name,)):
            continue
        return self._data(name)

    def verify(self) -> int:
        """Checks every piece of every member, in threads; the answer is how many there are.

        Raises:
            CompileError: `MLC-B004`, the first piece in the order of the file that was changed.
        """
        return sum(1 for _ in self._pieces(self.names()))

    def _pieces(self, names: tuple[str, ...]) -> Iterator[None]:
        for name in names:
            record = self.manifest.members[name]
            if root(bytes.fromhex(piece) for piece in record.pieces) != record.sha256:
                raise self._changed(name, 0, record.size)
        jobs = [
            (name, index, digest)
            for name in names
            for index, digest in enumerate(self.manifest.members[name].pieces)
        ]
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            for (name, index, _), same in zip(jobs, pool.map(self._is_same, jobs), strict=True):
                if not same:
                    pool.shutdown(wait=False, cancel_futures=True)
                    size = self.manifest.members[name].size
                    raise self._changed(name, index * PIECE, min(size, (index + 1) * PIECE))
                yield

    def _is_same(self, job: tuple[str, int, str]) -> bool:
        name, index, digest = job
        piece = self._data(name)[index * PIECE : (index + 1) * PIECE]
        return hashlib.sha256(piece).hexdigest() == digest

    def _data(self, name: str) -> memoryview:
        place = next(place for place in self.placed if place.member.name == name)
        return self._view[place.data : place.end]

    def _changed(self, name: str, start: int, end: int) -> CompileError:
        return CompileError(
            "MLC-B004",
            f"{name}: bytes {start}-{end - 1} were changed",
            location=str(self.path),
            remedy=AGAIN,
        )


def open_bundle(path: Path, policy: Policy) -> Bundle:
    """Opens a bundle that the policy accepts.

    Raises:
        CompileError: Any of `MLC-B001` to `MLC-B009` and `MLC-B013`; see `docs/errors.md`.
    """
    with reading(path), path.open("rb") as source:
        size = os.fstat(source.fileno()).st_size
        mapped = mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    return open_view(memoryview(mapped), path, policy)


def open_view(view: memoryview, path: Path, policy: Policy) -> Bundle:
    """Opens a bundle whose bytes are at hand; `path` stands in messages."""
    location = str(path)
    head = read_head(view, location)
    _check_signature(head, policy, location)
    manifest = parse_manifest(head.manifest, location)
    placed = check_frame(view, head, manifest, location)
    return Bundle(path, manifest, head, tuple(placed), view)


def _check_signature(head: Head, policy: Policy, location: str) -> None:
    if head.signature is None:
        if policy.allow_unsigned:
            return
        raise CompileError(
            "MLC-B005",
            "the bundle is not signed",
            location=location,
            remedy="mllmc bundle sign, or --allow-unsigned",
        )
    if not signs(head.signature, head.manifest):
        raise CompileError(
            "MLC-B007",
            "member 'signature' does not match 'manifest.json'",
            location=location,
            remedy=AGAIN,
        )
    signer = head.signature[:KEY_BYTES].hex()
    if signer not in policy.trust and not policy.allow_unsigned:
        raise CompileError(
            "MLC-B006",
            f"the key {signer} is not trusted",
            location=location,
            remedy="add it to the trust file if you know whose it is",
        )
