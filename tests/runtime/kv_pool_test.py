"""Conversations that share a pool of pages: what is shared, copied, demoted, moved, refused."""

from __future__ import annotations

import numpy as np
import pytest

from runtime_stub.conversations import Pool
from runtime_stub.failure import RuntimeFailure
from tests.runtime.kv_bench import (
    PAGE,
    PAGE_BYTES,
    Bench,
    Talk,
    expected,
    fallen,
    in_ours,
    rows_of,
)
from tests.runtime.library import RunError


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
    assert bench.pool.defragment(PAGE_BYTES - 1) == 0
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
    assert bench.pool.statistics.native_pages == 8
    first.cache.rewind(PAGE)
    assert bench.pool.statistics.native_pages == 4
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
