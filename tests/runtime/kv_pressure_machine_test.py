"""Conversations under pressure, in any order of events, against arrays of their rows.

They are saved and restored, sleep and wake, and give way to one another, besides all that those of
kv_machine_test.py do.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import MultipleResults, initialize, multiple, rule

from runtime_stub.failure import RuntimeFailure
from tests.runtime.kv_bench import MOST, PAGE, PAGE_BYTES, Talk
from tests.runtime.kv_machine_test import ROWS, Conversations

KEY = bytes(range(32))
NORMAL, LOW = 1, 2
FOLDER = tempfile.TemporaryDirectory()


class Pressure(Conversations):
    """Nothing is lost but what a status names, and only those give way that may."""

    talks = Conversations.talks

    def __init__(self) -> None:
        super().__init__()
        self.saved: dict[int, Talk] = {}
        self.priorities: dict[int, int] = {}

    def priority(self, talk: Talk) -> int:
        return self.priorities.get(id(talk), NORMAL)

    @initialize(demotes=st.booleans(), drops=st.booleans(), pages=st.integers(0, 12))
    def allow(self, demotes: bool, drops: bool, pages: int) -> None:
        self.demotes, self.drops = demotes, drops
        self.bench.pool.allow(demotes=demotes, drops=drops, recent=PAGE)
        if pages > 0:
            self.bench.pool.spill_to(FOLDER.name, pages * PAGE_BYTES)

    @rule(talk=Conversations.talks, place=st.integers(0, 2))
    def save(self, talk: Talk, place: int) -> None:
        path = Path(FOLDER.name, str(place))
        if self.is_awake(talk):
            talk.cache.save(path, KEY)
            self.saved[place] = Talk(talk.cache, talk.rows, {*talk.four}, [*talk.ids], talk.fell)

    @rule(target=Conversations.talks, place=st.integers(0, 2))
    def restore(self, place: int) -> Talk | MultipleResults[Talk]:
        if place not in self.saved:
            return multiple()
        was = self.saved[place]
        with suppress(RuntimeFailure):  # the pool is full
            made = self.bench.pool.restore(Path(FOLDER.name, str(place)), KEY)
            self.bench.talks.append(Talk(made, was.rows, {*was.four}, [*was.ids], was.fell))
            return self.bench.talks[-1]
        return multiple()

    @rule(talk=Conversations.talks)
    def spill(self, talk: Talk) -> None:
        before = talk.cache.state
        with suppress(RuntimeFailure):  # there is no file, or no room in it
            talk.cache.spill()
            return
        assert talk.cache.state == before

    @rule(talk=Conversations.talks)
    def wake(self, talk: Talk) -> None:
        before = talk.cache.state
        with suppress(RuntimeFailure):  # there is no room, or it was dropped
            talk.cache.wake()
            return
        assert talk.cache.state == before != "awake"

    @rule(talk=Conversations.talks, priority=st.integers(0, 2))
    def prioritise(self, talk: Talk, priority: int) -> None:
        talk.cache.set_priority(priority)
        self.priorities[id(talk)] = priority

    @rule(target=Conversations.talks, talk=Conversations.talks)
    def fork(self, talk: Talk) -> Talk | MultipleResults[Talk]:
        made = super().fork(talk)
        if isinstance(made, Talk):
            self.priorities[id(made)] = self.priority(talk)
        return made

    @rule(pages=st.integers(0, 10), below=st.integers(0, 2))
    def relieve(self, pages: int, below: int) -> None:
        self.make_room(pages * PAGE_BYTES, below)

    def make_room(self, room: int, below: int) -> bool:
        """Asks for so many bytes; whether they came free."""
        states = [talk.cache.state for talk in self.bench.talks]
        used = self.bench.pool.statistics.used_bytes
        done = False
        with suppress(RuntimeFailure):  # there was less to free
            freed = self.bench.pool.relieve(room, below)
            assert freed == used - self.bench.pool.statistics.used_bytes >= room
            done = True
        for talk, before in zip(self.bench.talks, states, strict=True):
            self.gave_way(talk, before, below)
        return done

    def gave_way(self, talk: Talk, before: str, below: int) -> None:
        """What relief did to a conversation, and that it might."""
        after, may = talk.cache.state, self.priority(talk) > below
        if may and self.demotes:
            self.fell(talk, PAGE)
        assert after == before or may
        if after == before or after == "sleeping":
            return
        assert after == "dropped"
        assert self.drops
        assert self.priority(talk) == LOW
        talk.rows, talk.ids, talk.four, talk.fell = talk.rows[:, :0], [], set(), False

    @rule(target=Conversations.talks, tokens=st.integers(1, MOST), priority=st.integers(0, 2))
    def admit(self, tokens: int, priority: int) -> Talk | MultipleResults[Talk]:
        """What is admitted finds room, after relief and moves."""
        pool = self.bench.pool
        if not pool.admits(tokens, priority):
            return multiple()
        found = pool.statistics
        need = -(-tokens // PAGE) * PAGE_BYTES - (found.room_bytes - found.used_bytes)
        assert self.make_room(max(need, 0), priority)
        pool.defragment(found.room_bytes)
        talk = self.bench.start()
        self.bench.append(talk, ROWS[0][:, :tokens])
        talk.ids = [0] * tokens
        return talk


Pressure.TestCase.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
TestPressure = Pressure.TestCase
