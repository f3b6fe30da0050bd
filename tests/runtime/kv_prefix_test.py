"""Conversations that begin with the pages that others computed."""

from __future__ import annotations

import numpy as np
import pytest

from runtime_stub.failure import RuntimeFailure
from tests.runtime import library as plain
from tests.runtime.kv_bench import DIM, HEADS, PAGE, Bench, rows_of


def test_a_conversation_begins_with_what_another_computed(bench: Bench) -> None:
    talk = bench.start()
    bench.append(talk, rows_of(150, 1))
    ids = [*range(150)]
    talk.cache.publish(ids)
    other = bench.start()
    assert other.cache.adopt([*ids[:140], 7, 7, 7]) == 128
    found = bench.pool.statistics
    assert (found.native_pages, found.shared_pages, found.adopted_tokens) == (3, 2, 128)
    other.rows = talk.rows[:, :128]
    np.testing.assert_array_equal(bench.held(other), other.rows)
    third = bench.start()
    assert third.cache.adopt(ids[:75]) == 64
    third.rows = talk.rows[:, :64]
    bench.append(third, rows_of(10, 2))
    np.testing.assert_array_equal(bench.held(third), third.rows)
    np.testing.assert_array_equal(bench.held(talk), talk.rows)


def test_beginnings_differ_by_identity_and_by_every_token(bench: Bench) -> None:
    talk = bench.start()
    bench.append(talk, rows_of(128, 1))
    ids = [*range(128)]
    talk.cache.publish(ids, b"image 1")
    for asked, who, tokens in (
        (ids, b"image 1", 128), (ids, b"image 2", 0), (ids, b"", 0), ([9, *ids[1:]], b"image 1", 0),
        ([*ids[:64], 9, *ids[65:]], b"image 1", 64), ([*ids[:127], 9], b"image 1", 96),
        (ids[32:], b"image 1", 0),
    ):  # fmt: skip
        other = bench.start()
        assert other.cache.adopt(asked, who) == tokens


def test_no_other_beginning_is_taken_though_its_bucket_is(bench: Bench) -> None:
    """The table is small, so that one in ten of these meets a known stretch in its bucket."""
    talk = bench.start()
    bench.append(talk, rows_of(128, 1))
    ids = [*range(128)]
    talk.cache.publish(ids, b"image")
    other = bench.start()
    for at in range(300):
        assert other.cache.adopt(ids, b"%d" % at) == 0
        assert other.cache.adopt([*ids[:31], 1000 + at], b"image") == 0


def test_beginnings_that_nobody_has_make_room(bench: Bench) -> None:
    for at in range(3):
        talk = bench.start()
        bench.append(talk, rows_of(2 * PAGE, at))
        talk.cache.publish([at] * 2 * PAGE)
        talk.cache.close()
        bench.talks.remove(talk)
    assert bench.pool.statistics.published_pages == 6
    reader = bench.start()
    assert reader.cache.adopt([0] * PAGE) == PAGE
    large = bench.start()
    bench.append(large, rows_of(6 * PAGE, 9))
    found = bench.pool.statistics
    assert (found.published_pages, found.forgotten_pages) == (3, 3)
    left = [bench.start().cache.adopt([at] * 2 * PAGE) for at in range(3)]
    assert left == [PAGE, 0, 2 * PAGE], "what was used last stays, and what a conversation has"


def test_what_4_bits_made_does_not_become_known(bench: Bench) -> None:
    """Else a conversation that adopts it says something else than one that computes it."""
    talk = bench.start()
    rows = rows_of(3 * PAGE, 1)
    ids = [*range(3 * PAGE)]
    bench.append(talk, rows[:, :PAGE])
    talk.cache.publish(ids[:PAGE])
    talk.cache.demote(0)
    bench.append(talk, rows[:, PAGE : 2 * PAGE])
    talk.cache.publish(ids[: 2 * PAGE])
    assert bench.start().cache.adopt(ids) == PAGE, "page 1 looked at 4 bits"
    other = bench.start()
    bench.append(other, rows_of(PAGE, 2))
    other.cache.demote(0)
    other.cache.rewind(PAGE - 1)
    other.rows = other.rows[:, : PAGE - 1]
    bench.append(other, rows_of(1, 3))
    fork = other.cache.fork()
    for cache in (other.cache, fork):
        cache.publish([7] * PAGE)
    fork.close()
    assert bench.start().cache.adopt([7] * PAGE) == 0, "native again, but not exact"


def test_a_conversation_that_a_caller_wrote_is_not_empty(bench: Bench) -> None:
    talk = bench.start()
    bench.append(talk, rows_of(PAGE, 1))
    talk.cache.publish([*range(PAGE)])
    written = bench.start()
    written.cache.use_in(bench.handle)
    data, error = np.ones((HEADS, PAGE, DIM), np.float32), plain.ffi().new("mllm_error *")
    pointer = plain.ffi().cast("float *", data.ctypes.data)
    assert not plain.library().mllm_session_cache_write(
        bench.session.handle, 0, 0, 0, pointer, PAGE, error
    )
    with pytest.raises(RuntimeFailure, match="only an empty one can begin"):
        written.cache.adopt([*range(PAGE)])
    for each in (talk, written):
        bench.talks.remove(each)
        each.cache.close()
    found = bench.pool.statistics
    assert (found.native_pages, found.published_pages) == (1, 1), "no page is lost"


def test_what_is_not_held_cannot_become_known(bench: Bench) -> None:
    talk = bench.start()
    bench.append(talk, rows_of(40, 1))
    with pytest.raises(RuntimeFailure, match="holds 40 tokens, 41 cannot become known"):
        talk.cache.publish([*range(41)])
    with pytest.raises(RuntimeFailure, match="only an empty one can begin"):
        talk.cache.adopt([1])
