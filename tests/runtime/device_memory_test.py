"""A device in a memory domain of its own, over memory that checks every cache operation.

The program is written from the format's description; what it must give is computed by NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from runtime_stub import RuntimeFailure
from runtime_stub.library import CData, check, ffi, library, new_error
from tests.runtime.cases import normal
from tests.runtime.program_writer import ProgramWriter

UNIT = 1 << 20
X = normal(40, 40) / 4
ADD = [0, 1, 96 << 32]


def program(*, twice: bool = False) -> ProgramWriter:
    """main: y = exp(x + x) + x, and exp of it again where `twice`: the device does exp."""
    writer = ProgramWriter()
    x, y = writer.io("x", "f32", [40, 40]), writer.io("y", "f32", [40, 40])
    names = ("sum", "once", "again")
    total, once, again = (writer.arena_tensor(name, "f32", [40, 40]) for name in names)
    writer.stage("f32_elementwise", [x, x], [total], [ADD], "/sum")
    writer.stage("device_call", [total], [once], ["npu", "exp"], "/exp")
    if twice:
        writer.stage("device_call", [once], [again], ["npu", "exp"], "/exp_1")
    writer.stage("f32_elementwise", [again if twice else once, x], [y], [ADD], "/add")
    writer.entry("main", inputs=[x], outputs=[y])
    return writer


def on_the_callers_memory() -> ProgramWriter:
    """main: y = exp(x), of memory that the caller gives."""
    writer = ProgramWriter()
    x, y = writer.io("x", "f32", [40, 40]), writer.io("y", "f32", [40, 40])
    writer.stage("device_call", [x], [y], ["npu", "exp"], "/exp")
    writer.entry("main", inputs=[x], outputs=[y])
    return writer


@dataclass
class Npu:
    """A device in C's eyes that computes exp where its tensors lie."""

    memory: int
    fails: bool = False
    addresses: list[int] = field(default_factory=list[int])
    kept: list[object] = field(default_factory=list[object])

    def table(self) -> CData:
        made = ffi.new("mllm_device *")
        made.name, made.memory = self.keep(ffi.new("char[]", b"npu")), self.memory
        for member in ("open", "prepare", "run", "close"):
            function: Callable[..., object] = getattr(self, member)
            callback = ffi.callback(ffi.typeof(getattr(made, member)), function)
            setattr(made, member, self.keep(callback))
        return made

    def keep(self, value: CData) -> CData:
        self.kept.append(value)
        return value

    def open(self, context: CData, bundle: CData, opened: CData, error: CData) -> int:
        return 0

    def prepare(self, context: CData, opened: CData, name: CData, into: CData, error: CData) -> int:
        return 0

    def run(self, context: CData, opened: CData, function: CData, *operands: CData) -> int:
        inputs, _, outputs, _, _ = operands
        self.addresses.append(int(ffi.cast("uintptr_t", inputs[0].data)))
        if self.fails:
            return int(library().MLLM_INTERNAL)
        taken, given = (ffi.buffer(each[0].data, each[0].bytes) for each in (inputs, outputs))
        np.frombuffer(given, np.float32)[...] = np.exp(np.frombuffer(taken, np.float32))
        return 0

    def close(self, context: CData, opened: CData) -> None:
        pass


Open = Callable[[ProgramWriter, Npu, CData], CData]


@pytest.fixture
def pools() -> Iterator[Callable[[CData], CData]]:
    """Makes pools of a backend, and takes them down."""
    made: list[CData] = []

    def make(backend: CData) -> CData:
        options = ffi.new("mllm_pool_options *", {"bytes": UNIT, "backend": backend})
        handle, error = ffi.new("mllm_pool **"), new_error()
        check(library().mllm_pool_create(options, handle, error), error)
        made.append(handle[0])
        return handle[0]

    yield make
    for pool in made:
        assert library().mllm_pool_report(pool, ffi.NULL, ffi.NULL, ffi.NULL) == 0
        library().mllm_pool_destroy(pool)


@pytest.fixture
def opened(pools: Callable[[CData], CData]) -> Iterator[Open]:
    """Opens a program on a device with a session's arena in a pool; sessions go before pools."""
    models: list[CData] = []
    sessions: list[CData] = []
    kept: list[object] = []

    def open_all(writer: ProgramWriter, npu: Npu, pool: CData) -> CData:
        raw, _ = writer.finish()
        table, model, error = npu.table(), ffi.new("mllm_model **"), new_error()
        kept.extend((raw, table, npu))
        made = library().mllm_model_create_on(
            raw, len(raw), ffi.NULL, 0, ffi.NULL, table, 1, model, error
        )
        check(made, error)
        models.append(model[0])
        options = ffi.new("mllm_session_options *", {"threads": 1, "pool": pool})
        session = ffi.new("mllm_session **")
        check(library().mllm_session_create(model[0], options, session, error), error)
        sessions.append(session[0])
        return session[0]

    yield open_all
    for session in sessions:
        library().mllm_session_destroy(session)
    for model in models:
        library().mllm_model_destroy(model)


def run(session: CData) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    y, error = np.zeros_like(X), new_error()
    given, wanted = ffi.new("mllm_tensor *"), ffi.new("mllm_tensor *")
    for tensor, array in ((given, X), (wanted, y)):
        tensor.data, tensor.bytes = ffi.cast("void *", array.ctypes.data), array.nbytes
    given.dtype, given.rank, given.dims[0], given.dims[1] = 1, 2, *X.shape
    check(library().mllm_run(session, 0, given, 1, wanted, 1, error), error)
    return y


def maintained(pool: CData) -> list[int]:
    """How often memory was cleaned, invalidated and flushed."""
    statistics = ffi.new("mllm_pool_statistics *")
    library().mllm_pool_statistics_of(pool, statistics)
    return list(statistics.maintained)[1:]


@pytest.mark.parametrize(
    ("domain", "operations"),
    [
        ("MLLM_MEMORY_NPU", [0, 1, 1]),
        ("MLLM_MEMORY_GPU", [0, 1, 1]),
        ("MLLM_MEMORY_UNCACHED", [0, 1, 1]),
        ("MLLM_MEMORY_NPU_COHERENT", [0, 0, 0]),
    ],
)
def test_processor_and_device_see_what_the_other_wrote(
    domain: str, operations: list[int], opened: Open, pools: Callable[[CData], CData]
) -> None:
    npu = Npu(getattr(library(), domain))
    pool = pools(library().mllm_pool_checking())
    session = opened(program(), npu, pool)
    before = maintained(pool)
    np.testing.assert_allclose(run(session), np.exp(X + X) + X, rtol=1e-6)
    assert [a - b for a, b in zip(maintained(pool), before, strict=True)] == operations


def test_calls_in_a_row_need_no_operation_between_them(
    opened: Open, pools: Callable[[CData], CData]
) -> None:
    npu = Npu(library().MLLM_MEMORY_NPU)
    pool = pools(library().mllm_pool_checking())
    session = opened(program(twice=True), npu, pool)
    before = maintained(pool)
    np.testing.assert_allclose(run(session), np.exp(np.exp(X + X)) + X, rtol=1e-5)
    assert [a - b for a, b in zip(maintained(pool), before, strict=True)] == [0, 1, 1]


def test_the_device_gets_addresses_of_its_own(
    opened: Open, pools: Callable[[CData], CData]
) -> None:
    coherent, apart = (
        Npu(getattr(library(), f"MLLM_MEMORY_NPU{kind}")) for kind in ("_COHERENT", "")
    )
    for npu in (coherent, apart):
        run(opened(program(), npu, pools(library().mllm_pool_checking())))
    (as_processor,), (as_device,) = coherent.addresses, apart.addresses
    assert as_processor % 64 == as_device % 64 == 0
    assert as_processor != as_device


def test_after_a_fault_of_the_device_the_session_goes_on(
    opened: Open, pools: Callable[[CData], CData]
) -> None:
    npu = Npu(library().MLLM_MEMORY_NPU, fails=True)
    session = opened(program(), npu, pools(library().mllm_pool_checking()))
    with pytest.raises(RuntimeFailure) as caught:
        run(session)
    assert (caught.value.code, caught.value.location) == ("MLC-X029", "main: /exp")
    npu.fails = False
    np.testing.assert_allclose(run(session), np.exp(X + X) + X, rtol=1e-6)


def test_memory_of_the_caller_is_not_passed_to_a_device_that_cannot_see_it(
    opened: Open, pools: Callable[[CData], CData]
) -> None:
    npu = Npu(library().MLLM_MEMORY_NPU)
    session = opened(on_the_callers_memory(), npu, pools(library().mllm_pool_checking()))
    with pytest.raises(RuntimeFailure) as caught:
        run(session)
    assert (caught.value.code, caught.value.location) == ("MLC-X030", "main: /exp")
    assert npu.addresses == []


def test_a_session_whose_pool_the_device_cannot_see_is_refused(
    opened: Open, pools: Callable[[CData], CData]
) -> None:
    cases = (
        (ffi.NULL, "the session has no pool"),
        (pools(library().mllm_pool_anonymous()), "is not visible to an NPU: buffer 'arena'"),
    )
    for pool, words in cases:
        with pytest.raises(RuntimeFailure) as caught:
            opened(program(), Npu(library().MLLM_MEMORY_NPU), pool)
        assert caught.value.code == "MLC-X030"
        assert "the device 'npu' cannot see the arena" in caught.value.message
        assert words in caught.value.message


def test_a_domain_that_there_is_not_is_refused(opened: Open) -> None:
    with pytest.raises(RuntimeFailure) as caught:
        opened(program(), Npu(library().MLLM_MEMORY_DOMAINS), ffi.NULL)
    assert caught.value.code == "MLC-X001"
