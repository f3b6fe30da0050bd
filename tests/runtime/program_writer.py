"""Writes program.bin files for tests, from the format's description and nothing of the compiler's.

writer = ProgramWriter()
tokens = writer.symbol("T", 64)
x = writer.io("x", "f32", [tokens, 8])
y = writer.io("y", "f32", [tokens, 8])
writer.stage("f32_softmax", [x], [y], [1])
writer.entry("main", inputs=[x], outputs=[y])
program, weights = writer.finish()
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]

DTYPES: dict[str, int] = {
    name: i + 1
    for i, name in enumerate(
        ["f32", "f64", "f16", "bf16", "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", "bool"],
    )
}
SIZES = dict(zip(DTYPES, (4, 8, 2, 2, 8, 4, 2, 1, 8, 4, 2, 1, 1), strict=True))
OPS = {"+": 2, "*": 3, "//": 4, "%": 5, "min": 6, "max": 7}
ARENA, WEIGHT, IO = 0, 1, 2
NONE = 0xFFFFFFFF
NO_SLOT = 0xFFFFFFFFFFFFFFFF


@dataclass(frozen=True)
class Expr:
    """A dim as postfix words; `upper` is its value at the symbols' bounds."""

    words: tuple[tuple[int, int], ...]
    upper: int

    def join(self, other: Expr | int, op: str) -> Expr:
        right = expr(other)
        a, b = self.upper, right.upper
        results = {"+": a + b, "*": a * b, "//": a // max(b, 1), "%": max(b, 1), "min": min(a, b)}
        return Expr((*self.words, *right.words, (OPS[op], 0)), results.get(op, max(a, b)))

    def __add__(self, other: Expr | int) -> Expr:
        return self.join(other, "+")

    def __mul__(self, other: Expr | int) -> Expr:
        return self.join(other, "*")

    def __floordiv__(self, other: Expr | int) -> Expr:
        return self.join(other, "//")


def expr(value: Expr | int) -> Expr:
    return value if isinstance(value, Expr) else Expr(((0, value),), value)


Dim = Expr | int
Param = int | float | str | Expr | Sequence["int | Expr"]


@dataclass
class ProgramWriter:
    """Collects the twelve sections."""

    strings: bytearray = field(default_factory=lambda: bytearray(b"\0"))
    symbols: list[bytes] = field(default_factory=list[bytes])
    words: list[int] = field(default_factory=list[int])
    exprs: list[bytes] = field(default_factory=list[bytes])
    tensors: list[bytes] = field(default_factory=list[bytes])
    args: list[int] = field(default_factory=list[int])
    params: list[int] = field(default_factory=list[int])
    kinds: bytearray = field(default_factory=bytearray)
    kernels: dict[str, int] = field(default_factory=dict[str, int])
    stages: list[bytes] = field(default_factory=list[bytes])
    entries: list[bytes] = field(default_factory=list[bytes])
    caches: list[bytes] = field(default_factory=list[bytes])
    weights: bytearray = field(default_factory=bytearray)
    arena: int = 0
    first_stage: int = 0

    def string(self, text: str) -> int:
        self.strings += text.encode() + b"\0"
        return len(self.strings) - len(text.encode()) - 1

    def symbol(self, name: str, bound: int, least: int = 0) -> Expr:
        self.symbols.append(struct.pack("<IIq", self.string(name), least, bound))
        return Expr(((1, len(self.symbols) - 1),), bound)

    def expr(self, value: Expr | int) -> int:
        words = expr(value).words
        self.exprs.append(struct.pack("<II", len(self.words), 2 * len(words)))
        self.words += [part for word in words for part in word]
        return len(self.exprs) - 1

    def tensor(
        self,
        name: str,
        dtype: str,
        dims: Sequence[Dim],
        storage: int,
        offset: int,
        size: int,
    ) -> int:
        ids = [self.expr(d) for d in dims] + [0] * (8 - len(dims))
        head = (self.string(name), DTYPES[dtype], len(dims), storage, offset, size)
        self.tensors.append(struct.pack("<4I2Q8I", *head, *ids))
        return len(self.tensors) - 1

    def take(self, dtype: str, dims: Sequence[Dim]) -> tuple[int, int]:
        """An offset in the arena and the bytes at the bounds."""
        offset, size = self.arena, SIZES[dtype]
        for d in dims:
            size *= expr(d).upper
        self.arena = (offset + size + 63) // 64 * 64
        return offset, size

    def arena_tensor(self, name: str, dtype: str, dims: Sequence[Dim]) -> int:
        return self.tensor(name, dtype, dims, ARENA, *self.take(dtype, dims))

    def io(self, name: str, dtype: str, dims: Sequence[Dim], slot: int | None = None) -> int:
        """A tensor of the caller's; `slot` is its default offset in the arena."""
        size = SIZES[dtype]
        for d in dims:
            size *= expr(d).upper
        return self.tensor(
            name, dtype, dims, IO, NO_SLOT if slot is None else slot, min(size, 1 << 62)
        )

    def weight(self, name: str, value: Array) -> int:
        self.weights += b"\0" * (-len(self.weights) % 64)
        offset = len(self.weights)
        self.weights += np.ascontiguousarray(value).tobytes()
        return self.tensor(name, dtype_of(value), value.shape, WEIGHT, offset, value.nbytes)

    def stage(
        self,
        kernel: str,
        inputs: Sequence[int | None],
        outputs: Sequence[int],
        params: Sequence[Param] = (),
        location: str = "",
        flags: int = 0,
    ) -> None:
        index = self.kernels.setdefault(kernel, len(self.kernels))
        first_arg, first_param = len(self.args), len(self.params)
        self.args += [NONE if i is None else i for i in inputs] + list(outputs)
        for param in params:
            self.param(param)
        counts = len(inputs), len(outputs), first_param, len(self.params) - first_param
        place = self.string(location or f"/{kernel}")
        self.stages.append(struct.pack("<8I", index, first_arg, *counts, place, flags))

    def param(self, value: Param) -> None:
        if isinstance(value, Expr):
            self.push(2, self.expr(value))
        elif isinstance(value, float):
            self.push(1, struct.unpack("<q", struct.pack("<d", value))[0])
        elif isinstance(value, int):
            self.push(0, value)
        elif isinstance(value, str):
            self.push(3, self.string(value))
        else:
            self.push(0, len(value))
            for item in value:
                self.param(item)

    def push(self, kind: int, value: int) -> None:
        self.kinds.append(kind)
        self.params.append(value)

    def cache(
        self, name: str, *, layers: int, kv_heads: int, head_dim: int, tokens: int,
        past: int = NONE, page_tokens: int = 256, formats: Sequence[int] = (),
    ) -> int:  # fmt: skip
        """A cache; formats is its table: recent, then format and scales of keys of each layer."""
        table = len(self.params) + 1 if formats else 0
        for word in formats:
            self.push(0, word)
        record = self.string(name), layers, kv_heads, head_dim, page_tokens, tokens, table, past
        self.caches.append(struct.pack("<8I", *record))
        return len(self.caches) - 1

    def entry(
        self, name: str, *, inputs: Sequence[int], outputs: Sequence[int], cache: int = -1,
        role: str = "graph", buckets: Sequence[int] = (),
    ) -> None:  # fmt: skip
        """The stages since the last entry; or none, and the words of a table of buckets."""
        table = len(self.params) + 1 if buckets else 0
        for word in buckets:
            self.push(0, word)
        first = len(self.args)
        self.args += [*inputs, *outputs]
        stages = self.first_stage, len(self.stages) - self.first_stage
        ranges = first, len(inputs), first + len(inputs), len(outputs)
        names = self.string(name), self.string(role)
        self.entries.append(struct.pack("<8IiI", *names, *stages, *ranges, cache, table))
        self.first_stage = len(self.stages)

    def finish(self) -> tuple[bytes, bytes]:
        """The program and its weights."""
        kernels = [struct.pack("<I", self.string(name)) for name in self.kernels]
        sections: list[tuple[bytes, int]] = [
            (bytes(self.strings), len(self.strings)),
            joined(self.symbols),
            (struct.pack(f"<{len(self.words)}q", *self.words), len(self.words)),
            joined(self.exprs),
            joined(self.tensors),
            (struct.pack(f"<{len(self.args)}I", *self.args), len(self.args)),
            (struct.pack(f"<{len(self.params)}q", *self.params), len(self.params)),
            (bytes(self.kinds), len(self.kinds)),
            joined(kernels),
            joined(self.stages),
            joined(self.entries),
            joined(self.caches),
        ]
        table, body, start = b"", b"", 128
        for data, count in sections:
            table += struct.pack("<II", start + len(body), count)
            body += data + b"\0" * (-len(data) % 8)
        head = b"MLLMPRG\x01" + struct.pack("<I", 1) + table
        head += struct.pack("<QQ", self.arena, len(self.weights))
        return head + b"\0" * (start - len(head)) + body, bytes(self.weights)


def joined(records: Sequence[bytes]) -> tuple[bytes, int]:
    return b"".join(records), len(records)


def dtype_of(value: Array) -> str:
    kinds: Mapping[str, str] = {"f": "f", "i": "i", "u": "u", "b": "bool"}
    name = kinds[value.dtype.kind]
    return name if name == "bool" else f"{name}{8 * value.dtype.itemsize}"


def pack_panels(weight: Array) -> Array:
    """[N, K] as [ceil(N / 16), K, 16]: panel p, row k, lane j is weight[16p + j, k]."""
    rows, depth = weight.shape
    panels = -(-rows // 16)
    padded = np.zeros((panels * 16, depth), weight.dtype)
    padded[:rows] = weight
    return np.ascontiguousarray(padded.reshape(panels, 16, depth).transpose(0, 2, 1))
