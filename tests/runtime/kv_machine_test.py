"""Conversations in one pool, in any order of events, against arrays of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
)

from tests.runtime.kv_bench import (
    MOST,
    PAGE,
    PAGE_BYTES,
    Bench,
    Talk,
    expected,
    fallen,
    rows_of,
)
from tests.runtime.library import RunError
from tests.runtime.program_writer import Array


def common_tokens(a: Sequence[int], b: Sequence[int]) -> int:
    """With which both begin."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y),
                min(len(a), len(b)))  # fmt: skip


ROWS = [rows_of(MOST, token) for token in range(2)]
"""What each token has at each position."""


class Conversations(RuleBasedStateMachine):
    """Conversations come, grow, fork, rewind, swap, fall to 4 bits and go, while pages move."""

    talks = Bundle("talks")

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.known: list[tuple[bytes, tuple[int, ...]]] = []

    def is_awake(self, talk: Talk) -> bool:
        """Whether it can be read and go on."""
        return talk.cache.state == "awake"

    @rule(target=talks)
    def start(self) -> Talk:
        return self.bench.start()

    @rule(talk=talks, token=st.integers(0, 1), tokens=st.integers(1, 90))
    def append(self, talk: Talk, token: int, tokens: int) -> None:
        tokens = min(tokens, MOST - talk.rows.shape[1])
        before = talk.rows
        if tokens == 0:
            return
        found: Sequence[Array] = []
        start = before.shape[1]
        with suppress(RunError):  # the pool is full
            found = self.bench.append(talk, ROWS[token][:, start : start + tokens])
            talk.ids += [token] * tokens
        if not found:
            assert talk.rows is before
            return
        for y, want in zip(found, expected(talk.rows, tokens), strict=True):
            np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)

    @rule(target=talks, talk=talks)
    def fork(self, talk: Talk) -> Talk | MultipleResults[Talk]:
        if not self.is_awake(talk):
            return multiple()
        made = Talk(talk.cache.fork(), talk.rows.copy(), {*talk.four}, [*talk.ids], talk.fell)
        self.bench.talks.append(made)
        return made

    @rule(talk=talks, share=st.floats(0, 1))
    def rewind(self, talk: Talk, share: float) -> None:
        length = int(share * talk.rows.shape[1]) if self.is_awake(talk) else 0
        talk.cache.rewind(length)
        talk.rows, talk.ids = talk.rows[:, :length], talk.ids[:length]
        talk.four -= {*range(-(-length // PAGE), MOST)}

    @rule(a=talks, b=talks)
    def swap(self, a: Talk, b: Talk) -> None:
        a.cache.swap(b.cache)
        a.rows, b.rows = b.rows, a.rows
        a.four, b.four = b.four, a.four
        a.ids, b.ids, a.fell, b.fell = b.ids, a.ids, b.fell, a.fell

    @rule(talk=talks, recent=st.integers(0, 200))
    def demote(self, talk: Talk, recent: int) -> None:
        """Pages fall, but for those that there is no room for."""
        talk.cache.demote(recent)
        self.fell(talk, recent)

    def fell(self, talk: Talk, recent: int) -> None:
        """Finds the old pages that fell."""
        if not self.is_awake(talk):
            return
        held = self.bench.held(talk)
        for page in {*range((talk.rows.shape[1] - recent) // PAGE)} - talk.four:
            at, fell = slice(page * PAGE, (page + 1) * PAGE), fallen(talk.rows, page, page + 1)
            if not np.array_equal(held[:, at], talk.rows[:, at]):
                talk.rows = fell
                talk.four.add(page)
                talk.fell = True

    @rule(talk=talks, who=st.sampled_from([b"", b"image"]))
    def publish(self, talk: Talk, who: bytes) -> None:
        if not talk.fell and self.is_awake(talk):
            talk.cache.publish(talk.ids, who)
            self.known.append((who, tuple(talk.ids)))

    @rule(target=talks, ids=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 90)), max_size=3),
          who=st.sampled_from([b"", b"image", b"another"]))  # fmt: skip
    def adopt(self, ids: list[tuple[int, int]], who: bytes) -> Talk:
        """It begins with what others began with under the same identity, and nothing else."""
        talk = self.bench.start()
        asked = [token for token, count in ids for _ in range(count)][:MOST]
        tokens = talk.cache.adopt(asked, who)
        common = [common_tokens(asked, told) for name, told in self.known if name == who]
        assert tokens <= max((count // 32 * 32 for count in common), default=0)
        talk.ids = asked[:tokens]
        talk.rows = np.stack(ROWS)[talk.ids, :, range(tokens)].transpose(1, 0, 2)
        return talk

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
            if not self.is_awake(talk):
                continue
            np.testing.assert_array_equal(self.bench.held(talk), talk.rows)
        found = self.bench.pool.statistics
        assert found.used_bytes <= found.room_bytes
        assert found.conversations == len(self.bench.talks)
        needed = sum(-(-talk.rows.shape[1] // PAGE) for talk in self.bench.talks)
        assert found.native_pages + found.demoted <= needed + found.published_pages

    def teardown(self) -> None:
        self.bench.close()


Conversations.TestCase.settings = settings(
    max_examples=25, stateful_step_count=40, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
TestConversations = Conversations.TestCase
