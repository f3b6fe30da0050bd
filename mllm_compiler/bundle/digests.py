"""Digests of members, a MiB at a time."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from mllm_compiler.bundle.manifest import PIECE, MemberRecord


@dataclass
class PieceDigester:
    """Takes a member's bytes in chunks of any size and digests them by piece."""

    size: int = 0
    crc32: int = 0
    _pieces: list[bytes] = field(default_factory=list[bytes])

    def __post_init__(self) -> None:
        self._current = hashlib.sha256()

    def update(self, chunk: memoryview) -> None:
        """Adds the next bytes."""
        self.crc32 = zlib.crc32(chunk, self.crc32)
        while len(chunk):
            room = PIECE - self.size % PIECE
            part = chunk[:room]
            self._current.update(part)
            self.size += len(part)
            chunk = chunk[room:]
            if self.size % PIECE == 0:
                self._close()

    def record(self) -> MemberRecord:
        """What the manifest says of the member; no bytes may follow."""
        if self.size % PIECE:
            self._close()
        return MemberRecord(
            size=self.size,
            crc32=f"{self.crc32:08x}",
            sha256=root(self._pieces),
            pieces=tuple(piece.hex() for piece in self._pieces),
        )

    def _close(self) -> None:
        self._pieces.append(self._current.digest())
        self._current = hashlib.sha256()


def root(pieces: Iterable[bytes]) -> str:
    """The digest of a member: SHA-256 over the raw digests of its pieces."""
    return hashlib.sha256(b"".join(pieces)).hexdigest()
