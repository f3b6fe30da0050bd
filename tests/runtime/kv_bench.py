"""A pool, a session and conversations, beside arrays that hold what each conversation must.

What 4 bits make of a row is what the NumPy reference says; everything else is equal to the bit.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mllm_compiler.reference import kv_cache
from runtime_stub.conversations import Conversation, Pool
from runtime_stub.library import ffi
from runtime_stub.library import library as loaded
from tests.runtime import library as plain
from tests.runtime.cases import F32, normal
from tests.runtime.cases_attention import Shape, attention_of
from tests.runtime.library import Model, Session
from tests.runtime.program_writer import Array, ProgramWriter

LAYERS, HEADS, DIM, PAGE, MOST = 2, 2, 16, 64, 400
ROW = LAYERS * 2 * HEADS * DIM
PAGE_BYTES = PAGE * ROW * 4
ROOM = 9 * PAGE_BYTES


def decoder(name: str = "kv", weights: bool = False) -> tuple[bytes, bytes]:
    """step: stores k and v of T tokens in each layer and attends, queries being the keys."""
    writer = ProgramWriter()
    if weights:
        writer.weight("w", np.ones(16, np.float32))
    tokens, _ = writer.symbol("T", MOST), writer.symbol("P", MOST)
    inputs, outputs = [], []
    for layer in range(LAYERS):
        k, v = (writer.io(f"{n}{layer}", "f32", [1, tokens, HEADS * DIM]) for n in "kv")
        writer.stage("f32_kv_store", [k, v], [], [layer, HEADS], f"/store{layer}")
        y = writer.io(f"y{layer}", "f32", [1, tokens, HEADS * DIM])
        params = [layer, HEADS, HEADS, 0.3, 1, 0]
        writer.stage("f32_paged_attention", [k, None, None], [y], params, f"/attend{layer}")
        inputs += [k, v]
        outputs.append(y)
    cache = writer.cache(name, layers=LAYERS, kv_heads=HEADS, head_dim=DIM, tokens=MOST,
                         past=1, page_tokens=PAGE)  # fmt: skip
    writer.entry("step", inputs=inputs, outputs=outputs, cache=cache)
    return writer.finish()


def in_ours(handle: Any, kind: str) -> Any:
    """A handle of the tests' own binding as one of the runtime's."""
    loaded()
    return ffi.cast(f"{kind} *", int(plain.ffi().cast("uintptr_t", handle)))


@dataclass
class Talk:
    """A conversation, and what it must hold: rows [2 LAYERS, tokens, HEADS * DIM]."""

    cache: Conversation
    rows: F32 = field(default_factory=lambda: np.zeros((2 * LAYERS, 0, HEADS * DIM), np.float32))
    four: set[int] = field(default_factory=set[int])
    """Pages that have 4 bits."""
    ids: list[int] = field(default_factory=list[int])
    fell: bool = False
    """Whether a page of it ever had 4 bits."""


class Bench:
    """A model, a session and a pool."""

    def __init__(self, room: int = ROOM, name: str = "kv", weights: bool = False) -> None:
        self.model = Model(*decoder(name, weights))
        self.session = Session(self.model)
        self.pool = Pool(in_ours(self.model.handle, "mllm_model"), 0, room)
        self.handle = in_ours(self.session.handle, "mllm_session")
        self.talks: list[Talk] = []

    def start(self) -> Talk:
        talk = Talk(self.pool.conversation())
        self.talks.append(talk)
        return talk

    def append(self, talk: Talk, new: F32) -> Sequence[Array]:
        """Runs a step; its outputs."""
        talk.cache.use_in(self.handle)
        given = {
            f"{n}{i}": new[2 * i + at][None] for i in range(LAYERS) for at, n in enumerate("kv")
        }
        found = self.session.run(given, [f"y{i}" for i in range(LAYERS)], "step")
        talk.four -= {*range(talk.rows.shape[1] // PAGE, MOST)}
        talk.rows = np.concatenate([talk.rows, new], 1)
        return found

    def held(self, talk: Talk) -> F32:
        """What the cache says that it holds, in the order of rows."""
        talk.cache.use_in(self.handle)
        tokens = talk.cache.length
        rows = np.zeros((2 * LAYERS, tokens, HEADS * DIM), np.float32)
        error = plain.ffi().new("mllm_error *")
        for at in range(2 * LAYERS):
            data = np.zeros((HEADS, tokens, DIM), np.float32)
            pointer = plain.ffi().cast("float *", data.ctypes.data)
            assert not plain.library().mllm_session_cache_read(
                self.session.handle, 0, at // 2, at % 2, pointer, tokens, error
            )
            rows[at] = data.transpose(1, 0, 2).reshape(tokens, HEADS * DIM)
        return rows

    def close(self) -> None:
        for talk in self.talks:
            talk.cache.close()
        self.pool.close()


def rows_of(tokens: int, seed: object) -> F32:
    return normal(2 * LAYERS, tokens, HEADS * DIM, seed=seed)


def fallen(rows: F32, first: int, last: int) -> F32:
    """Rows whose pages first..last have 4 bits, but for the first 32 tokens of all."""
    made = rows.copy()
    for page in range(first, last):
        start, stop = max(page * PAGE, kv_cache.GROUP), (page + 1) * PAGE
        for at in range(2 * LAYERS):
            part = rows[at, start:stop].reshape(stop - start, HEADS, DIM).transpose(1, 0, 2)[None]
            rule_of = kv_cache.four_bit_values if at % 2 else kv_cache.four_bit_keys
            made[at, start:stop] = rule_of(part)[0].transpose(1, 0, 2).reshape(stop - start, -1)
    return made


def expected(rows: F32, new: int) -> list[F32]:
    """Attention of the last `new` tokens over all."""
    shape = Shape(1, new, rows.shape[1], HEADS, HEADS, DIM, causal=1)
    parts = rows.reshape(2 * LAYERS, 1, -1, HEADS, DIM).transpose(0, 1, 3, 2, 4)
    return [
        attention_of(
            rows[2 * i, -new:][None], parts[2 * i], parts[2 * i + 1], shape, 0.3, None, None
        )
        for i in range(LAYERS)
    ]


def taken(bench: Bench) -> tuple[int, ...]:
    found = bench.pool.statistics
    return found.used_bytes, found.native_pages, found.demoted, found.conversations


@contextmanager
def largest_file(most: int) -> Iterator[None]:
    """As a full disk: no file gets longer."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
