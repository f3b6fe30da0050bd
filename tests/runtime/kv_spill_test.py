"""Conversations that sleep in a file: equal to the bit when they wake, and what can go wrong."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from runtime_stub.failure import RuntimeFailure
from tests.runtime.kv_bench import (
    PAGE,
    PAGE_BYTES,
    Bench,
    Talk,
    expected,
    fallen,
    largest_file,
    rows_of,
    taken,
)
from tests.runtime.library import RunError


def spill_file(folder: Path) -> Path:
    """The file of this process that has no name in a folder any more."""
    links = [Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd")]
    found = [link for link in links if os.path.islink(link) and str(folder) in os.readlink(link)]
    return found[0]


@pytest.fixture
def sleepy(bench: Bench, tmp_path: Path) -> Bench:
    """A pool with a file for 12 pages."""
    bench.pool.spill_to(tmp_path, 12 * PAGE_BYTES)
    return bench


def test_it_wakes_as_it_was(sleepy: Bench, tmp_path: Path) -> None:
    talk = sleepy.start()
    sleepy.append(talk, rows_of(300, 1))
    talk.cache.demote(recent=100)
    talk.rows = fallen(talk.rows, 0, 3)
    before = taken(sleepy)
    talk.cache.spill()
    assert (talk.cache.state, talk.cache.length) == ("sleeping", 300)
    assert taken(sleepy) == (0, 0, 0, 1)
    found = sleepy.pool.statistics
    assert (found.spilled_pages, found.asleep_pages) == (5, 5)
    assert os.listdir(tmp_path) == []
    assert spill_file(tmp_path).stat().st_size <= 5 * PAGE_BYTES
    assert talk.rows[0, 299].tobytes() not in spill_file(tmp_path).read_bytes()
    talk.cache.spill()
    talk.cache.wake()
    assert (taken(sleepy), talk.cache.state) == (before, "awake")
    found = sleepy.pool.statistics
    assert (found.woken_pages, found.asleep_pages) == (5, 0)
    np.testing.assert_array_equal(sleepy.held(talk), talk.rows)
    new = rows_of(3, 2)
    for y, want in zip(sleepy.append(talk, new), expected(talk.rows, 3), strict=True):
        np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)


def test_pages_that_another_conversation_has_stay(sleepy: Bench) -> None:
    talk = sleepy.start()
    sleepy.append(talk, rows_of(150, 1))
    other = Talk(talk.cache.fork(), talk.rows)
    sleepy.talks.append(other)
    sleepy.append(other, rows_of(1, 2))
    talk.cache.spill()
    found = sleepy.pool.statistics
    assert (found.native_pages, found.asleep_pages, found.shared_pages) == (3, 1, 2)
    np.testing.assert_array_equal(sleepy.held(other), other.rows)
    other.cache.rewind(0)
    other.rows = other.rows[:, :0]
    talk.cache.spill()
    assert sleepy.pool.statistics.native_pages == 0, "nobody else has them any more"
    talk.cache.wake()
    np.testing.assert_array_equal(sleepy.held(talk), talk.rows)


def test_a_known_beginning_is_free_to_go_when_its_conversation_sleeps(sleepy: Bench) -> None:
    talk = sleepy.start()
    sleepy.append(talk, rows_of(4 * PAGE, 1))
    ids = [*range(4 * PAGE)]
    talk.cache.publish(ids)
    talk.cache.spill()
    assert sleepy.pool.statistics.native_pages == 4
    assert sleepy.start().cache.adopt(ids[:PAGE]) == PAGE
    large = sleepy.start()
    sleepy.append(large, rows_of(6 * PAGE, 2))
    large.cache.rewind(0)
    large.rows = large.rows[:, :0]
    talk.cache.wake()
    np.testing.assert_array_equal(sleepy.held(talk), talk.rows)


def test_who_sleeps_is_refused_until_woken(sleepy: Bench, tmp_path: Path) -> None:
    talk = sleepy.start()
    sleepy.append(talk, rows_of(100, 1))
    talk.cache.spill()
    rows = talk.rows
    told = r"cache 'kv' sleeps, with 100 tokens .*MLC-X053"
    with pytest.raises(RunError, match=told):
        sleepy.append(talk, rows_of(1, 2))
    talk.rows = rows
    refused: list[Callable[[], object]] = [
        lambda: talk.cache.fork(),
        lambda: talk.cache.rewind(50),
        lambda: talk.cache.save(tmp_path / "talk.kv", bytes(32)),
        lambda: talk.cache.publish([1] * 32),
        lambda: talk.cache.adopt([1] * 32),
        lambda: sleepy.pool.spill_to(None),
    ]
    for call in refused:
        with pytest.raises(RuntimeFailure, match="MLC-X053"):
            call()
    assert talk.cache.demote(0) == 0
    talk.cache.wake()
    np.testing.assert_array_equal(sleepy.held(talk), rows)
    talk.cache.spill()
    talk.cache.rewind(0)
    assert (talk.cache.state, sleepy.pool.statistics.asleep_pages) == ("awake", 0)
    talk.rows = rows[:, :0]


def test_a_full_disk_and_a_full_file_leave_it_awake(sleepy: Bench, tmp_path: Path) -> None:
    talk = sleepy.start()
    with pytest.raises(RuntimeFailure, match="no file for pages can be made"):
        sleepy.pool.spill_to(tmp_path / "none", PAGE_BYTES)
    sleepy.append(talk, rows_of(300, 1))
    before = taken(sleepy)
    for most in (0, PAGE_BYTES - 1, 3 * PAGE_BYTES):
        with largest_file(most), pytest.raises(RuntimeFailure, match="cannot be stored") as fault:
            talk.cache.spill()
        assert fault.value.code == "MLC-X052"
        assert (taken(sleepy), talk.cache.state) == (before, "awake")
        assert sleepy.pool.statistics.asleep_pages == 0
    sleepy.pool.spill_to(tmp_path, 4 * PAGE_BYTES)
    with pytest.raises(RuntimeFailure, match="has room for 4"):
        talk.cache.spill()
    np.testing.assert_array_equal(sleepy.held(talk), talk.rows)
    sleepy.pool.spill_to(None)
    with pytest.raises(RuntimeFailure, match="has no file for pages"):
        talk.cache.spill()


def test_a_full_pool_lets_it_sleep_on(sleepy: Bench) -> None:
    talk, other = sleepy.start(), sleepy.start()
    sleepy.append(talk, rows_of(300, 1))
    talk.cache.spill()
    sleepy.append(other, rows_of(300, 2))
    before = taken(sleepy)
    with pytest.raises(RuntimeFailure, match="no room for the 300 tokens") as fault:
        talk.cache.wake()
    assert fault.value.code == "MLC-X006"
    assert (taken(sleepy), talk.cache.state) == (before, "sleeping")
    other.cache.spill()
    talk.cache.wake()
    np.testing.assert_array_equal(sleepy.held(talk), talk.rows)
    talk.cache.spill()
    other.cache.wake()
    np.testing.assert_array_equal(sleepy.held(other), other.rows)


@pytest.mark.parametrize("how", ["changed", "cut", "swapped"])
def test_a_damaged_file_loses_one_conversation(sleepy: Bench, tmp_path: Path, how: str) -> None:
    talk, other, awake = (sleepy.start() for _ in range(3))
    for at, each in enumerate((other, talk, awake)):
        sleepy.append(each, rows_of(2 * PAGE, at))
    other.cache.spill()
    talk.cache.spill()
    with spill_file(tmp_path).open("r+b") as file:
        pages = [file.read(PAGE_BYTES) for _ in range(4)]
        if how == "cut":
            file.truncate(4 * PAGE_BYTES - 1)
        file.seek(2 * PAGE_BYTES)
        if how == "changed":
            file.write(bytes([pages[2][0] ^ 1]))
        if how == "swapped":
            file.write(pages[3] + pages[2])
    with pytest.raises(RuntimeFailure, match=r"the 128 tokens .* are lost") as fault:
        talk.cache.wake()
    assert fault.value.code == "MLC-X050"
    assert (talk.cache.state, talk.cache.length) == ("dropped", 0)
    found = sleepy.pool.statistics
    assert (found.dropped_pages, found.native_pages, found.asleep_pages) == (2, 2, 2)
    talk.rows = talk.rows[:, :0]
    with pytest.raises(RunError, match="the tokens of cache 'kv' were dropped"):
        sleepy.append(talk, rows_of(1, 5))
    other.cache.wake()
    for each in (other, awake):
        np.testing.assert_array_equal(sleepy.held(each), each.rows)
    talk.cache.rewind(0)
    talk.rows = talk.rows[:, :0]
    sleepy.append(talk, rows_of(70, 6))
    np.testing.assert_array_equal(sleepy.held(talk), talk.rows)


def test_what_4_bits_made_is_remembered(sleepy: Bench, tmp_path: Path) -> None:
    """A page that is native again looks exact and is not, also after a sleep and from a file."""
    talk = sleepy.start()
    sleepy.append(talk, rows_of(PAGE, 1))
    talk.cache.demote(0)
    talk.cache.rewind(PAGE - 1)
    talk.rows = fallen(talk.rows, 0, 1)[:, : PAGE - 1]
    sleepy.append(talk, rows_of(1, 2))
    talk.cache.save(tmp_path / "talk.kv", bytes(32))
    talk.cache.spill()
    talk.cache.wake()
    made = sleepy.pool.restore(tmp_path / "talk.kv", bytes(32))
    for cache in (talk.cache, made):
        cache.publish([7] * PAGE)
    assert sleepy.start().cache.adopt([7] * PAGE) == 0
    made.close()
