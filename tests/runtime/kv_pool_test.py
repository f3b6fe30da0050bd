"""Conversations that share a pool of pages, against a model that holds each one's rows as arrays.

What 4 bits make of a row is what the NumPy reference says; everything else is equal to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from mllm_compiler.reference import kv_cache
from runtime_stub.conversations import Conversation, Pool
from runtime_stub.failure import RuntimeFailure
from runtime_stub.library import ffi
from runtime_stub.library import library as loaded
from tests.runtime import library as plain
from tests.runtime.cases import F32, normal
from tests.runtime.cases_attention import Shape, attention_of
from tests.runtime.library import Model, RunError, Session
from tests.runtime.program_writer import Array, ProgramWriter

LAYERS, HEADS, DIM, PAGE, MOST = 2, 2, 16, 64, 400
ROW = LAYERS * 2 * HEADS * DIM
PAGE_BYTES = PAGE * ROW * 4
ROOM = 9 * PAGE_BYTES


def decoder() -> tuple[bytes, bytes]:
    """step: stores k and v of T tokens in each layer and attends, queries being the keys."""
    writer = ProgramWriter()
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
    cache = writer.cache("kv", layers=LAYERS, kv_heads=HEADS, head_dim=DIM, tokens=MOST,
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


class Bench:
    """A model, a session and a pool."""

    def __init__(self, room: int = ROOM) -> None:
        self.model = Model(*decoder())
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


class Conversations(RuleBasedStateMachine):
    """Conversations come, grow, fork, rewind, swap, fall to 4 bits and go, while pages move."""

    talks = Bundle("talks")

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.steps = 0

    @rule(target=talks)
    def start(self) -> Talk:
        return self.bench.start()

    @rule(talk=talks, tokens=st.integers(1, 90))
    def append(self, talk: Talk, tokens: int) -> None:
        self.steps += 1
        tokens = min(tokens, MOST - talk.rows.shape[1])
        before = talk.rows
        if tokens == 0:
            return
        found: Sequence[Array] = []
        with suppress(RunError):  # the pool is full
            found = self.bench.append(talk, rows_of(tokens, self.steps))
        if not found:
            assert talk.rows is before
            return
        for y, want in zip(found, expected(talk.rows, tokens), strict=True):
            np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)

    @rule(target=talks, talk=talks)
    def fork(self, talk: Talk) -> Talk:
        made = Talk(talk.cache.fork(), talk.rows.copy(), {*talk.four})
        self.bench.talks.append(made)
        return made

    @rule(talk=talks, share=st.floats(0, 1))
    def rewind(self, talk: Talk, share: float) -> None:
        length = int(share * talk.rows.shape[1])
        talk.cache.rewind(length)
        talk.rows = talk.rows[:, :length]
        talk.four -= {*range(-(-length // PAGE), MOST)}

    @rule(a=talks, b=talks)
    def swap(self, a: Talk, b: Talk) -> None:
        a.cache.swap(b.cache)
        a.rows, b.rows = b.rows, a.rows
        a.four, b.four = b.four, a.four

    @rule(talk=talks, recent=st.integers(0, 200))
    def demote(self, talk: Talk, recent: int) -> None:
        """Pages fall, but for those that there is no room for."""
        talk.cache.demote(recent)
        held = self.bench.held(talk)
        for page in {*range((talk.rows.shape[1] - recent) // PAGE)} - talk.four:
            at, fell = slice(page * PAGE, (page + 1) * PAGE), fallen(talk.rows, page, page + 1)
            if not np.array_equal(held[:, at], talk.rows[:, at]):
                talk.rows = fell
                talk.four.add(page)

    @rule(talk=consumes(talks))
    def end(self, talk: Talk) -> None:
        talk.cache.close()
        self.bench.talks.remove(talk)

    @rule(most=st.integers(0, 4 * PAGE_BYTES))
    def defragment(self, most: int) -> None:
        assert self.bench.pool.defragment(most) <= most

    @invariant()
    def holds_what_was_said(self) -> None:
        for talk in self.bench.talks:
            assert talk.cache.length == talk.rows.shape[1]
            np.testing.assert_array_equal(self.bench.held(talk), talk.rows)
        found = self.bench.pool.statistics
        assert found.used_bytes <= found.room_bytes
        assert found.conversations == len(self.bench.talks)

    def teardown(self) -> None:
        self.bench.close()


Conversations.TestCase.settings = settings(
    max_examples=25, stateful_step_count=40, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
TestConversations = Conversations.TestCase


@pytest.fixture
def bench() -> Any:
    made = Bench()
    yield made
    made.close()


def test_a_fork_shares_pages_until_it_writes(bench: Bench) -> None:
    talk = bench.start()
    bench.append(talk, rows_of(150, 1))
    other = Talk(talk.cache.fork(), talk.rows)
    bench.talks.append(other)
    found = bench.pool.statistics
    assert (found.native_pages, found.shared_pages, found.copied_pages) == (3, 3, 0)
    bench.append(other, rows_of(1, 2))
    found = bench.pool.statistics
    assert (found.native_pages, found.shared_pages, found.copied_pages) == (4, 2, 1)
    np.testing.assert_array_equal(bench.held(talk), talk.rows)
    np.testing.assert_array_equal(bench.held(other), other.rows)


def test_old_pages_fall_to_4_bits_and_come_back_when_written(bench: Bench) -> None:
    talk = bench.start()
    bench.append(talk, rows_of(300, 1))
    free = talk.cache.demote(recent=100)
    found = bench.pool.statistics
    assert (found.native_pages, found.demoted) == (2, 3)
    assert free == 5 * PAGE_BYTES - found.used_bytes > 1.5 * PAGE_BYTES
    talk.rows = fallen(talk.rows, 0, 3)
    np.testing.assert_array_equal(bench.held(talk), talk.rows)
    new = rows_of(3, 2)
    for y, want in zip(bench.append(talk, new), expected(talk.rows, 3), strict=True):
        np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)
    talk.cache.rewind(140)
    talk.rows = talk.rows[:, :140]
    bench.append(talk, new)
    np.testing.assert_array_equal(bench.held(talk), talk.rows)
    assert bench.pool.statistics.demoted == 2


def test_a_fork_of_what_fell_keeps_its_own(bench: Bench) -> None:
    talk = bench.start()
    bench.append(talk, rows_of(200, 1))
    other = Talk(talk.cache.fork(), talk.rows)
    bench.talks.append(other)
    assert talk.cache.demote(recent=0) == 0
    np.testing.assert_array_equal(bench.held(other), other.rows)
    np.testing.assert_array_equal(bench.held(talk), fallen(talk.rows, 0, 3))


def test_pages_move_together_by_bounded_steps(bench: Bench) -> None:
    talks = [bench.start() for _ in range(4)]
    for at, talk in enumerate(talks):
        bench.append(talk, rows_of(2 * PAGE, at))
    for at in (0, 2):
        talks[at].cache.close()
        bench.talks.remove(talks[at])
    assert bench.pool.defragment(PAGE_BYTES // 2) == 0
    moved = [bench.pool.defragment(PAGE_BYTES + 64) for _ in range(5)]
    assert moved == [PAGE_BYTES] * 4 + [0]
    found = bench.pool.statistics
    assert found.largest_free_bytes == found.room_bytes - found.used_bytes
    for at in (1, 3):
        np.testing.assert_array_equal(bench.held(talks[at]), talks[at].rows)


def test_a_full_pool_refuses_and_loses_nothing(bench: Bench) -> None:
    first, second = bench.start(), bench.start()
    bench.append(first, rows_of(5 * PAGE, 1))
    bench.append(second, rows_of(3 * PAGE, 2))
    with pytest.raises(RunError, match="has no page left for tokens 192 to 322") as fault:
        bench.append(second, rows_of(130, 3))
    assert fault.value.code == "MLC-X006"
    for talk in (first, second):
        np.testing.assert_array_equal(bench.held(talk), talk.rows)
    first.cache.rewind(PAGE)
    first.rows = first.rows[:, :PAGE]
    bench.append(second, rows_of(130, 3))
    np.testing.assert_array_equal(bench.held(second), second.rows)


def test_what_cannot_be_is_refused(bench: Bench) -> None:
    talk = bench.start()
    with pytest.raises(RuntimeFailure, match="1 conversations still have pages"):
        bench.pool.close()
    with pytest.raises(RuntimeFailure, match="its length cannot become 5"):
        talk.cache.rewind(5)
    other = Bench()
    with pytest.raises(RuntimeFailure, match="not of one pool"):
        talk.cache.swap(other.start().cache)
    with pytest.raises(RuntimeFailure, match="no cache 0 of the session's model"):
        talk.cache.use_in(other.handle)
    other.close()
    with pytest.raises(RuntimeFailure, match="one has"):
        Pool(in_ours(bench.model.handle, "mllm_model"), 0, PAGE_BYTES - 1)
