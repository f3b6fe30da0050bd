"""A session's arena from a pool: NumPy's answers; its bytes go back; no room is a status."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from runtime_stub import RuntimeFailure
from runtime_stub.library import CData, check, ffi, library, new_error
from tests.runtime.cases import normal
from tests.runtime.program_writer import ProgramWriter

UNIT = 1 << 20
X = normal(400, 400)


def through_the_arena() -> tuple[bytes, bytes]:
    """main: y = (x + x) + x; the sum in between takes 640,000 bytes of arena."""
    writer = ProgramWriter()
    x, y = writer.io("x", "f32", [400, 400]), writer.io("y", "f32", [400, 400])
    twice = writer.arena_tensor("twice", "f32", [400, 400])
    writer.stage("f32_elementwise", [x, x], [twice], [[0, 1, 96 << 32]], "/twice")
    writer.stage("f32_elementwise", [twice, x], [y], [[0, 1, 96 << 32]], "/thrice")
    writer.entry("main", inputs=[x], outputs=[y])
    return writer.finish()


@pytest.fixture
def model() -> Iterator[CData]:
    program, weights = through_the_arena()
    made, error = library(), new_error()
    kept = np.zeros(len(weights) + 64, np.uint8)
    place = ffi.cast("void *", kept.ctypes.data + -kept.ctypes.data % 64)
    handle = ffi.new("mllm_model **")
    check(
        made.mllm_model_create(program, len(program), place, len(weights), ffi.NULL, handle, error),
        error,
    )
    yield handle[0]
    made.mllm_model_destroy(handle[0])


@pytest.fixture
def pool() -> Iterator[CData]:
    options, handle = ffi.new("mllm_pool_options *", {"bytes": UNIT}), ffi.new("mllm_pool **")
    error = new_error()
    check(library().mllm_pool_create(options, handle, error), error)
    yield handle[0]
    library().mllm_pool_destroy(handle[0])


def session_of(model: CData, pool: CData) -> CData:
    options = ffi.new("mllm_session_options *", {"threads": 1, "pool": pool})
    handle, error = ffi.new("mllm_session **"), new_error()
    check(library().mllm_session_create(model, options, handle, error), error)
    return handle[0]


def assert_trebles(session: CData) -> None:
    y, error = np.zeros_like(X), new_error()
    given, wanted = ffi.new("mllm_tensor *"), ffi.new("mllm_tensor *")
    for tensor, array in ((given, X), (wanted, y)):
        tensor.data, tensor.bytes = ffi.cast("void *", array.ctypes.data), array.nbytes
    given.dtype, given.rank, given.dims[0], given.dims[1] = 1, 2, *X.shape
    check(library().mllm_run(session, 0, given, 1, wanted, 1, error), error)
    np.testing.assert_array_equal(y, X + X + X)


def left(pool: CData) -> int:
    return int(library().mllm_pool_report(pool, b"a session", ffi.NULL, ffi.NULL))


def used(pool: CData) -> int:
    statistics = ffi.new("mllm_pool_statistics *")
    library().mllm_pool_statistics_of(pool, statistics)
    return int(statistics.types[library().MLLM_POOL_ARENA].used)


def test_the_arena_comes_from_the_pool_and_goes_back(model: CData, pool: CData) -> None:
    for _ in range(3):
        session = session_of(model, pool)
        assert (left(pool), used(pool)) == (1, UNIT)
        assert_trebles(session)
        library().mllm_session_destroy(session)
        assert (left(pool), used(pool)) == (0, 0)


def test_no_room_is_told_and_harms_no_other_session(model: CData, pool: CData) -> None:
    first = session_of(model, pool)
    with pytest.raises(RuntimeFailure) as caught:
        session_of(model, pool)
    assert caught.value.code == "MLC-X060"
    assert "of 'arena' of a session" in caught.value.message
    assert left(pool) == 1
    assert_trebles(first)
    library().mllm_session_destroy(first)
    second = session_of(model, pool)
    assert_trebles(second)
    library().mllm_session_destroy(second)


def test_a_session_without_a_pool_takes_nothing_from_it(model: CData, pool: CData) -> None:
    session = session_of(model, ffi.NULL)
    assert_trebles(session)
    assert used(pool) == 0
    library().mllm_session_destroy(session)
