"""Room under pressure: what goes first, what stays, and what is admitted before it is computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from runtime_stub.failure import RuntimeFailure
from tests.runtime.kv_bench import PAGE, PAGE_BYTES, Bench, Talk, fallen, largest_file, rows_of

HIGH, NORMAL, LOW = range(3)


def talk_of(bench: Bench, pages: int, priority: int) -> Talk:
    talk = bench.start()
    talk.cache.set_priority(priority)
    bench.append(talk, rows_of(pages * PAGE, len(bench.talks)))
    return talk


def states(*talks: Talk) -> list[str]:
    return [talk.cache.state for talk in talks]


def test_the_least_urgent_and_the_longest_unused_sleep_first(bench: Bench, tmp_path: Path) -> None:
    bench.pool.spill_to(tmp_path, 9 * PAGE_BYTES)
    high, normal, low, lower = (talk_of(bench, 2, p) for p in (HIGH, NORMAL, LOW, LOW))
    bench.append(low, rows_of(1, 7))
    talks = (high, normal, low, lower)
    assert bench.pool.relieve(1, HIGH) == 2 * PAGE_BYTES
    assert states(*talks) == ["awake", "awake", "awake", "sleeping"], "low was used last"
    assert bench.pool.relieve(PAGE_BYTES, HIGH) == 3 * PAGE_BYTES
    assert states(*talks) == ["awake", "awake", "sleeping", "sleeping"]
    with pytest.raises(RuntimeFailure, match=r"0 bytes .* came free, not 1"):
        bench.pool.relieve(1, NORMAL)
    bench.pool.relieve(1, HIGH)
    assert states(*talks) == ["awake", "sleeping", "sleeping", "sleeping"]
    with pytest.raises(RuntimeFailure, match="MLC-X006"):
        bench.pool.relieve(1, HIGH)
    for talk in talks:
        talk.cache.wake()
        np.testing.assert_array_equal(bench.held(talk), talk.rows)


def test_beginnings_that_nobody_has_go_before_anyone(bench: Bench, tmp_path: Path) -> None:
    bench.pool.spill_to(tmp_path, 9 * PAGE_BYTES)
    old = talk_of(bench, 3, NORMAL)
    old.cache.publish([*range(3 * PAGE)])
    old.cache.rewind(0)
    old.rows = old.rows[:, :0]
    low = talk_of(bench, 2, LOW)
    assert bench.pool.relieve(2 * PAGE_BYTES, LOW) == 2 * PAGE_BYTES
    assert (low.cache.state, bench.pool.statistics.forgotten_pages) == ("awake", 2)
    assert bench.pool.relieve(2 * PAGE_BYTES, NORMAL) == 3 * PAGE_BYTES
    assert low.cache.state == "sleeping"


def test_numbers_change_only_where_they_may(bench: Bench, tmp_path: Path) -> None:
    """Old pages fall where they lie: the pool is full. Then conversations sleep."""
    normal, low, high = (talk_of(bench, 3, p) for p in (NORMAL, LOW, HIGH))
    with pytest.raises(RuntimeFailure):
        bench.pool.relieve(1, HIGH)
    bench.pool.allow(demotes=True, recent=PAGE)
    freed = bench.pool.relieve(PAGE_BYTES, HIGH)
    found = bench.pool.statistics
    assert freed == 9 * PAGE_BYTES - found.used_bytes >= PAGE_BYTES
    assert (found.native_pages, found.demoted) == (7, 2)
    low.rows = fallen(low.rows, 0, 2)
    for talk in (normal, low, high):
        np.testing.assert_array_equal(bench.held(talk), talk.rows)
    bench.pool.spill_to(tmp_path, 9 * PAGE_BYTES)
    bench.pool.relieve(2 * PAGE_BYTES, HIGH)
    normal.rows = fallen(normal.rows, 0, 2)
    assert states(normal, low, high) == ["awake", "sleeping", "awake"]
    np.testing.assert_array_equal(bench.held(normal), normal.rows)
    np.testing.assert_array_equal(bench.held(high), high.rows)


def test_only_those_of_low_priority_are_dropped_and_only_if_told_so(
    bench: Bench, tmp_path: Path
) -> None:
    normal, low = talk_of(bench, 3, NORMAL), talk_of(bench, 3, LOW)
    bench.pool.spill_to(tmp_path, 2 * PAGE_BYTES)
    with pytest.raises(RuntimeFailure, match="has room for 2"):
        bench.pool.relieve(1, HIGH)
    bench.pool.allow(drops=True)
    assert bench.pool.relieve(1, HIGH) == 3 * PAGE_BYTES
    assert states(normal, low) == ["awake", "dropped"]
    found = bench.pool.statistics
    assert (found.dropped_pages, found.dropped_bytes) == (3, 3 * PAGE_BYTES)
    with pytest.raises(RuntimeFailure, match="MLC-X05"):
        bench.pool.relieve(1, HIGH)
    low.rows = low.rows[:, :0]
    for told in (low.cache.fork, low.cache.wake, lambda: low.cache.adopt([1] * 32)):
        with pytest.raises(RuntimeFailure, match="were dropped"):
            told()
    low.cache.rewind(0)
    np.testing.assert_array_equal(bench.held(normal), normal.rows)


def test_a_full_disk_is_told_and_others_sleep(bench: Bench, tmp_path: Path) -> None:
    bench.pool.spill_to(tmp_path, 9 * PAGE_BYTES)
    large, small = talk_of(bench, 4, LOW), talk_of(bench, 1, LOW)
    with largest_file(2 * PAGE_BYTES):
        assert bench.pool.relieve(1, HIGH) == PAGE_BYTES
        assert states(large, small) == ["awake", "sleeping"]
        with pytest.raises(RuntimeFailure, match="MLC-X052"):
            bench.pool.relieve(1, HIGH)
    np.testing.assert_array_equal(bench.held(large), large.rows)


def test_what_two_conversations_have_stays(bench: Bench, tmp_path: Path) -> None:
    bench.pool.spill_to(tmp_path, 9 * PAGE_BYTES)
    bench.pool.allow(demotes=True, drops=True)
    talk = talk_of(bench, 3, LOW)
    other = Talk(talk.cache.fork(), talk.rows)
    bench.talks.append(other)
    with pytest.raises(RuntimeFailure, match="0 bytes"):
        bench.pool.relieve(1, HIGH)
    assert states(talk, other) == ["awake", "awake"]
    bench.append(other, rows_of(1, 9))
    assert bench.pool.relieve(1, HIGH) == PAGE_BYTES
    assert states(talk, other) == ["awake", "sleeping"], "a fork is as urgent as its origin"
    np.testing.assert_array_equal(bench.held(talk), talk.rows)


def test_it_is_known_before_anything_is_computed(bench: Bench, tmp_path: Path) -> None:
    for pages, priority in ((2, HIGH), (2, NORMAL), (3, LOW)):
        talk_of(bench, pages, priority)
    free = 2

    def most(priority: int) -> int:
        """The most pages that are admitted."""
        found = [n for n in range(1, 7) if bench.pool.admits(n * PAGE, priority)]
        assert found == [*range(1, len(found) + 1)]
        return len(found)

    assert [most(p) for p in range(3)] == [free] * 3
    bench.pool.spill_to(tmp_path, 2 * PAGE_BYTES)
    assert [most(p) for p in range(3)] == [free + 2, free, free], "low has three pages"
    bench.pool.allow(drops=True)
    assert [most(p) for p in range(3)] == [6, free + 3, free]
    bench.pool.allow(drops=False, demotes=True, recent=PAGE)
    bench.pool.spill_to(None)
    assert [most(p) for p in range(3)] == [free + 1, free + 1, free], "two pages fall, then three"
    assert not bench.pool.admits(10 * PAGE, HIGH)
    bench.talks[0].cache.publish([*range(2 * PAGE)])
    bench.talks[0].cache.rewind(0)
    bench.talks[0].rows = bench.talks[0].rows[:, :0]
    assert most(LOW) == free + 2, "a beginning that nobody has"


def test_a_number_that_is_no_priority_is_refused(bench: Bench) -> None:
    with pytest.raises(RuntimeFailure, match="no priority 3"):
        bench.start().cache.set_priority(3)
