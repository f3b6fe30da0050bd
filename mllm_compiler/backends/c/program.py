"""Writer of `program.bin`, the stage table that the runtime executes (ABI 1).

The layout is that of `mllm_program.h`: a header, then twelve sections of fixed records, little
endian, each aligned to 8 bytes. The writer knows no op: a stage is a kernel's name, tensors and
parameters.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mllm_compiler.dialects.dims import Atom, Dim
from mllm_compiler.reference import kv_cache

MAGIC: Final = b"MLLMPRG\x01"
ABI: Final = 1
NONE: Final = 0xFFFFFFFF
NO_SLOT: Final = 0xFFFFFFFFFFFFFFFF
MAX_RANK: Final = 8
HEADER: Final = 124
"""Bytes of the header: magic, ABI, twelve section records, bytes of the arena and of weights."""

ARENA, WEIGHT, IO = 0, 1, 2

DTYPES: Final[dict[str, int]] = {
    name: 1 + i
    for i, name in enumerate(
        (
            "f32",
            "f64",
            "f16",
            "bf16",
            "i64",
            "i32",
            "i16",
            "i8",
            "ui64",
            "ui32",
            "ui16",
            "ui8",
            "i1",
        )
    )
}
"""The runtime's number of each element type, by its MLIR spelling."""

CONST, SYM, ADD, MUL, FLOORDIV, MOD, MIN, MAX = range(8)
_BINARY = {"floordiv": FLOORDIV, "mod": MOD, "min": MIN, "max": MAX}

Param = tuple[str, int | float | str | Dim]
_KINDS = {"i64": 0, "f64": 1, "expr": 2, "string": 3}


KV_FORMATS: Final = {32: 0, 16: 1, 8: 2, 4: 3}
"""The runtime's number of how a layer of a cache is stored, by its bits."""


@dataclass(frozen=True, kw_only=True)
class Cache:
    """A KV cache of a program; `bits` of each layer, none where all of them hold f32."""

    name: str
    layers: int
    kv_heads: int
    head_dim: int
    max_tokens: int
    past_symbol: str | None
    page_tokens: int = kv_cache.PAGE
    bits: tuple[int, ...] = ()

    @property
    def recent(self) -> int:
        """Tokens before a page that do not fall to 4 bits; 0 where none ever does."""
        return kv_cache.RECENT if 4 in self.bits else 0

    @property
    def page_bytes(self) -> int:
        """Bytes of a page whose tokens have not fallen to 4 bits."""
        numbers, tokens = self.page_tokens * self.head_dim, self.page_tokens
        sizes = {32: 4 * numbers, 16: 2 * numbers}
        heads = [sizes.get(bits, numbers + 2 * tokens) for bits in self.bits or [32] * self.layers]
        return sum(2 * self.kv_heads * (-(-size // 4) * 4) for size in heads)


@dataclass(frozen=True, kw_only=True)
class Buckets:
    """How the entries that follow an entry serve it.

    Attributes:
        symbols: Whether padding stands before the real elements, by symbol.
        sizes: The sizes of the symbols, for each entry that follows.
    """

    symbols: Mapping[str, bool]
    sizes: Sequence[Sequence[int]]


@dataclass
class ProgramWriter:
    """Collects records; equal strings, expressions and parameters are written once.

    Args:
        bounds: The largest value of each symbol.
        least: The least value of each symbol; of one that is not listed 0.
    """

    bounds: Mapping[str, int]
    least: Mapping[str, int] = field(default_factory=dict[str, int])
    _strings: bytearray = field(default_factory=bytearray)
    _string_at: dict[str, int] = field(default_factory=dict[str, int])
    _symbols: dict[str, int] = field(default_factory=dict[str, int])
    _expr_words: list[int] = field(default_factory=list[int])
    _exprs: list[bytes] = field(default_factory=list[bytes])
    _expr_at: dict[Dim, int] = field(default_factory=dict[Dim, int])
    _tensors: list[bytes] = field(default_factory=list[bytes])
    _arg_ids: list[int] = field(default_factory=list[int])
    _params: list[int] = field(default_factory=list[int])
    _param_kinds: bytearray = field(default_factory=bytearray)
    _kernels: dict[str, int] = field(default_factory=dict[str, int])
    _stages: list[bytes] = field(default_factory=list[bytes])
    _entries: list[bytes] = field(default_factory=list[bytes])
    _caches: list[bytes] = field(default_factory=list[bytes])

    def __post_init__(self) -> None:
        """Expression 0 is the constant 0, which unused dims point to."""
        self.string("")
        self.expr(Dim.const(0))

    def string(self, text: str) -> int:
        """The offset of a string."""
        if text not in self._string_at:
            self._string_at[text] = len(self._strings)
            self._strings += text.encode() + b"\0"
        return self._string_at[text]

    def symbol(self, name: str) -> int:
        """The index of a symbol; its bound must be known."""
        self.string(name)
        return self._symbols.setdefault(name, len(self._symbols))

    def expr(self, dim: Dim) -> int:
        """The index of an expression."""
        if dim not in self._expr_at:
            words = self._postfix(dim)
            start = len(self._expr_words)
            self._expr_words += words
            self._exprs.append(struct.pack("<II", start, len(words)))
            self._expr_at[dim] = len(self._exprs) - 1
        return self._expr_at[dim]

    def tensor(
        self,
        *,
        name: str,
        dtype: str,
        dims: Sequence[Dim],
        storage: int,
        offset: int,
        max_bytes: int,
    ) -> int:
        """Adds a tensor; the answer is its id."""
        if len(dims) > MAX_RANK:
            raise ValueError(f"{name}: rank {len(dims)} is over {MAX_RANK}")
        exprs = [self.expr(d) for d in dims] + [0] * (MAX_RANK - len(dims))
        head = (self.string(name), DTYPES[dtype], len(dims), storage, offset, max_bytes)
        self._tensors.append(struct.pack("<IIIIQQ8I", *head, *exprs))
        return len(self._tensors) - 1

    def stage(
        self,
        kernel: str,
        inputs: Sequence[int | None],
        outputs: Sequence[int],
        params: Sequence[Param],
        location: str,
        *,
        fallback: bool = False,
    ) -> None:
        """Adds a call of a kernel; an absent operand is None."""
        number = self._kernels.setdefault(kernel, len(self._kernels))
        self.string(kernel)
        args = self._args([NONE if i is None else i for i in inputs] + list(outputs))
        first = len(self._params)
        for kind, value in params:
            self._param_kinds.append(_KINDS[kind])
            self._params.append(self._param(value))
        where = self.string(location)
        record = (number, args, len(inputs), len(outputs), first, len(params), where, int(fallback))
        self._stages.append(struct.pack("<8I", *record))

    def cache(self, cache: Cache, key_scales: Sequence[int | None] = ()) -> int:
        """Adds a cache, and for each layer with codes the weight that scales keys.

        The answer is its index.
        """
        past = NONE if cache.past_symbol is None else self.symbol(cache.past_symbol)
        shape = (cache.layers, cache.kv_heads, cache.head_dim, cache.page_tokens)
        table = self._formats(cache, key_scales) if cache.bits else 0
        record = (self.string(cache.name), *shape, cache.max_tokens, table, past)
        self._caches.append(struct.pack("<8I", *record))
        return len(self._caches) - 1

    def entry(
        self,
        *,
        name: str,
        role: str,
        first_stage: int,
        inputs: Sequence[int],
        outputs: Sequence[int],
        cache: int | None,
        buckets: Buckets | None = None,
    ) -> None:
        """Adds an entry: the stages from `first_stage` on."""
        stages = (first_stage, len(self._stages) - first_stage)
        taken, given = self._args(inputs), self._args(outputs)
        ends = (taken, len(inputs), given, len(outputs))
        record = (self.string(name), self.string(role), *stages, *ends)
        at = -1 if cache is None else cache
        table = 0 if buckets is None else self._buckets(buckets)
        self._entries.append(struct.pack("<8IiI", *record, at, table))

    def _formats(self, cache: Cache, key_scales: Sequence[int | None]) -> int:
        """The place of a cache's table among the params, counted from 1."""
        first, numbers = len(self._params), [cache.recent]
        for bits, scale in zip(cache.bits, key_scales, strict=True):
            numbers += [KV_FORMATS[bits], -1 if scale is None else scale]
        self._params += numbers
        self._param_kinds += bytes([_KINDS["i64"]] * len(numbers))
        return first + 1

    @property
    def stages(self) -> int:
        """The number of stages so far."""
        return len(self._stages)

    def finish(self, *, arena_bytes: int, weight_bytes: int) -> bytes:
        """The program's bytes."""
        symbols = [
            struct.pack("<IIq", self._string_at[name], self.least.get(name, 0), self.bounds[name])
            for name in self._symbols
        ]
        kernels = [struct.pack("<I", self._string_at[name]) for name in self._kernels]
        sections = [
            (bytes(self._strings), len(self._strings)),
            (b"".join(symbols), len(symbols)),
            (_words(self._expr_words, "q"), len(self._expr_words)),
            (b"".join(self._exprs), len(self._exprs)),
            (b"".join(self._tensors), len(self._tensors)),
            (_words(self._arg_ids, "I"), len(self._arg_ids)),
            (_words(self._params, "q"), len(self._params)),
            (bytes(self._param_kinds), len(self._param_kinds)),
            (b"".join(kernels), len(kernels)),
            (b"".join(self._stages), len(self._stages)),
            (b"".join(self._entries), len(self._entries)),
            (b"".join(self._caches), len(self._caches)),
        ]
        start = -(-HEADER // 8) * 8
        table, body = bytearray(), bytearray()
        for data, count in sections:
            table += struct.pack("<II", start + len(body), count)
            body += data + bytes(-len(data) % 8)
        head = MAGIC + struct.pack("<I", ABI) + bytes(table)
        head += struct.pack("<QQ", arena_bytes, weight_bytes)
        return head.ljust(start, b"\0") + bytes(body)

    def _args(self, ids: Sequence[int]) -> int:
        first = len(self._arg_ids)
        self._arg_ids += ids
        return first

    def _buckets(self, buckets: Buckets) -> int:
        """The place of a table in the parameters, counted from 1."""
        first, words = len(self._params), [len(buckets.symbols), len(buckets.sizes)]
        for name, left in buckets.symbols.items():
            words += [self.symbol(name), int(left)]
        for sizes in buckets.sizes:
            words += sizes
        self._params += words
        self._param_kinds += bytes(len(words))
        return first + 1

    def _param(self, value: int | float | str | Dim) -> int:
        if isinstance(value, str):
            return self.string(value)
        if isinstance(value, Dim):
            return self.expr(value)
        if isinstance(value, float):
            return int(struct.unpack("<q", struct.pack("<d", value))[0])
        return value

    def _postfix(self, dim: Dim) -> list[int]:
        if dim.unknown:
            raise ValueError("a dimension that only data decide has no expression")
        words: list[int] = []
        for i, (monomial, coefficient) in enumerate(dim.terms):
            factors = [self._atom(a) for a in monomial]
            if coefficient != 1 or not factors:
                factors.insert(0, [CONST, coefficient])
            for j, factor in enumerate(factors):
                words += factor if j == 0 else [*factor, MUL, 0]
            words += [ADD, 0] if i else []
        return words or [CONST, 0]

    def _atom(self, atom: Atom) -> list[int]:
        if not atom.op:
            return [SYM, self.symbol(atom.name)]
        assert atom.lhs is not None
        assert atom.rhs is not None
        return [*self._postfix(atom.lhs), *self._postfix(atom.rhs), _BINARY[atom.op], 0]


def _words(values: Sequence[int], kind: str) -> bytes:
    return struct.pack(f"<{len(values)}{kind}", *values)
