"""The weight store: bytes by content digest, mapped from files and never held as a copy.

The IR names a weight by `sha256:<64 hex digits>` alone, so that a dump holds no path; a store
finds the bytes in a source file, or, for tensors that a pass made, in the store's own sidecar file.
"""

from __future__ import annotations

import hashlib
import mmap
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from mllm_compiler.errors import CompileError

PIECE = 1 << 20
"""Bytes that are hashed or streamed at a time."""

DTYPES: dict[str, np.dtype[np.generic]] = {
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "i64": np.dtype(np.int64),
    "i32": np.dtype(np.int32),
    "i16": np.dtype(np.int16),
    "i8": np.dtype(np.int8),
    "ui64": np.dtype(np.uint64),
    "ui32": np.dtype(np.uint32),
    "ui16": np.dtype(np.uint16),
    "ui8": np.dtype(np.uint8),
    "i1": np.dtype(np.bool_),
    "i4": np.dtype(ml_dtypes.int4),
    "ui4": np.dtype(ml_dtypes.uint4),
    "i2": np.dtype(ml_dtypes.int2),
    "ui2": np.dtype(ml_dtypes.uint2),
}
"""NumPy's dtype of each element type, by its MLIR spelling."""

NARROW: dict[np.dtype[np.generic], int] = {
    DTYPES[name]: int(name.lstrip("ui")) for name in ("i4", "ui4", "i2", "ui2")
}
"""The bits of elements that share a byte, low bits first, as ONNX packs them."""


@dataclass(frozen=True)
class Extent:
    """Where a weight's bytes lie."""

    file: Path
    offset: int
    nbytes: int


@dataclass
class WeightStore:
    """Finds a weight's bytes by digest.

    Attributes:
        folder: Where tensors that passes make are appended (`sidecar.bin`); a temporary folder,
            removed with the store, where none is given.
    """

    folder: Path | None = None
    _extents: dict[str, Extent] = field(default_factory=dict[str, Extent])
    _maps: dict[Path, mmap.mmap] = field(default_factory=dict[Path, mmap.mmap])
    _temporary: tempfile.TemporaryDirectory[str] | None = None

    def __contains__(self, digest: str) -> bool:
        """Whether the bytes of `digest` are known."""
        return digest in self._extents

    @property
    def nbytes(self) -> int:
        """Bytes of all weights that the store knows, each counted once."""
        return sum(extent.nbytes for extent in self._extents.values())

    def digests(self) -> Iterator[str]:
        """The digests that the store knows, in the order of their arrival."""
        return iter(self._extents)

    def add_mapped(self, file: Path, offset: int, nbytes: int) -> str:
        """Registers bytes of a file that stays where it is; the answer is their digest.

        Raises:
            ValueError: The file ends before `offset + nbytes`.
        """
        digest = digest_of(self._view(Extent(file, offset, nbytes)))
        self._extents.setdefault(digest, Extent(file, offset, nbytes))
        return digest

    def add(self, array: NDArray[np.generic]) -> str:
        """Appends an array that a pass made to the sidecar; the answer is its digest.

        Raises:
            CompileError: `MLC-U005`, the sidecar cannot be written.
        """
        digest = digest_of(_bytes(array))
        return digest if digest in self._extents else self.add_pieces([array])

    def add_pieces(self, pieces: Iterable[NDArray[np.generic]]) -> str:
        """Appends an array that comes in pieces, of which one at a time is in memory.

        Narrow integers come in pieces of whole bytes.

        Raises:
            CompileError: `MLC-U005`, the sidecar cannot be written.
        """
        try:
            return self._append(pieces)
        except OSError as error:
            raise CompileError(
                "MLC-U005",
                f"the weights that passes make cannot be kept: {error.strerror}",
                location=str(self.folder or tempfile.gettempdir()),
                remedy="free space there, or name another folder in TMPDIR",
            ) from error

    def raw(self, digest: str) -> memoryview:
        """The bytes of `digest`, mapped and read-only.

        Raises:
            KeyError: The store does not know the digest.
        """
        return self._view(self._extents[digest])

    def array(self, digest: str, dtype: str, shape: tuple[int, ...]) -> NDArray[np.generic]:
        """The weight as a read-only array over the mapped bytes; narrow integers are unpacked.

        Raises:
            KeyError: The store does not know the digest.
        """
        raw = self.raw(digest)
        if DTYPES[dtype] in NARROW:
            return unpacked(np.frombuffer(raw, np.uint8), DTYPES[dtype], prod(shape)).reshape(shape)
        return np.frombuffer(raw, DTYPES[dtype]).reshape(shape)

    def release(self) -> None:
        """Drops the mappings' resident pages; arrays that live on keep their own."""
        for mapped in self._maps.values():
            mapped.madvise(mmap.MADV_DONTNEED)

    def _append(self, pieces: Iterable[NDArray[np.generic]]) -> str:
        sidecar, running = self._sidecar(), hashlib.sha256()
        offset = -(-sidecar.stat().st_size // 64) * 64 if sidecar.exists() else 0
        with sidecar.open("r+b" if sidecar.exists() else "wb") as out:
            out.seek(offset)
            for piece in pieces:
                running.update(_bytes(piece))
                out.write(_bytes(piece))
            digest, nbytes = f"sha256:{running.hexdigest()}", out.tell() - offset
            if digest in self._extents:
                out.truncate(offset)
        self._extents.setdefault(digest, Extent(sidecar, offset, nbytes))
        return digest

    def _sidecar(self) -> Path:
        if self.folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="mllm-weights-")
            self.folder = Path(self._temporary.name)
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / "sidecar.bin"

    def _view(self, extent: Extent) -> memoryview:
        if extent.nbytes == 0:
            return memoryview(b"")
        end = extent.offset + extent.nbytes
        mapped = self._maps.get(extent.file)
        if mapped is None or len(mapped) < end:
            with extent.file.open("rb") as source:
                mapped = mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ)
            self._maps[extent.file] = mapped
        if len(mapped) < end:
            raise ValueError(f"{extent.file.name} ends before byte {end}")
        return memoryview(mapped)[extent.offset : end]


def array_bytes(array: NDArray[np.generic]) -> NDArray[np.uint8]:
    """The bytes of an array, row by row, each element in its own."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def packed(array: NDArray[np.generic]) -> NDArray[np.uint8]:
    """The bytes of an array of narrow integers, which share them; the last is filled with zeros."""
    bits = NARROW[array.dtype]
    each, codes = 8 // bits, array_bytes(array) & ((1 << bits) - 1)
    codes = np.pad(codes, (0, -codes.size % each)).reshape(-1, each)
    places = codes << np.arange(0, 8, bits, dtype=np.uint8)
    return np.bitwise_or.reduce(places, axis=1).astype(np.uint8)


def unpacked(
    raw: NDArray[np.uint8], dtype: np.dtype[np.generic], count: int
) -> NDArray[np.generic]:
    """The first `count` narrow integers that share bytes, each in a byte of its own."""
    bits = NARROW.get(dtype, 8)
    codes = raw[:, None] >> np.arange(0, 8, bits, dtype=np.uint8) & ((1 << bits) - 1)
    return codes.reshape(-1)[:count].view(dtype)


def nbytes_of(dtype: str, shape: tuple[int, ...]) -> int:
    """The bytes of a tensor in the store."""
    count = prod(shape)
    bits = NARROW.get(DTYPES[dtype])
    return count * DTYPES[dtype].itemsize if bits is None else -(-count * bits // 8)


def digest_of(raw: memoryview) -> str:
    """`sha256:` and the 64 hexadecimal digits of the bytes' digest."""
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


def _bytes(array: NDArray[np.generic]) -> memoryview:
    """The bytes of an array as the store holds them."""
    return (packed(array) if array.dtype in NARROW else array_bytes(array)).data
