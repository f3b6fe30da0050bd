"""Where a pool puts buffers, in any order of events, against sets of the units that are in use."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from runtime_stub.library import CData, check, ffi, library, new_error

UNIT = 1 << 20
MEMORY = 24
SMALL = 512 << 10
"""Bytes up to which a buffer is a piece of a unit."""


@dataclass(frozen=True)
class Placed:
    """A buffer and the bytes that it has."""

    number: int
    offset: int
    bytes: int

    @property
    def units(self) -> set[int]:
        return set(range(self.offset // UNIT, (self.offset + self.bytes - 1) // UNIT + 1))


def runs_of(free: set[int]) -> list[tuple[int, int]]:
    """Length and first unit of every run."""
    firsts = [unit for unit in free if unit - 1 not in free]
    return [(next(n for n in range(1, len(free) + 1) if f + n not in free), f) for f in firsts]


class Placements(RuleBasedStateMachine):
    """Buffers come and go, at once or when an inference ends."""

    @initialize(fixed=st.booleans())
    def create(self, fixed: bool) -> None:
        """A pool with addresses to spare, or one where they are the memory."""
        backend = library().mllm_pool_checking() if fixed else library().mllm_pool_anonymous()
        options = ffi.new("mllm_pool_options *", {"bytes": MEMORY * UNIT, "backend": backend})
        handle, self.error = ffi.new("mllm_pool **"), new_error()
        check(library().mllm_pool_create(options, handle, self.error), self.error)
        self.pool: CData = handle[0]
        self.addresses = MEMORY if fixed else MEMORY * 5 // 4
        self.live: list[Placed] = []
        self.waiting: list[Placed] = []
        self.ticket: CData | None = None

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        self.end()
        while self.live:
            self.release(0)
        assert self.largest() == MEMORY
        library().mllm_pool_destroy(self.pool)

    @property
    def used(self) -> set[int]:
        return {unit for placed in self.live + self.waiting for unit in placed.units}

    @property
    def runs(self) -> list[tuple[int, int]]:
        """Free runs; no buffer can be longer than what memory is left, however long they are."""
        return runs_of(set(range(self.addresses)) - self.used)

    @rule(units=st.integers(1, 12), less=st.integers(0, SMALL - 1))
    def take_run(self, units: int, less: int) -> None:
        """Exactly whole units, in the shortest run that has room and the lowest of those."""
        fits = sorted(run for run in self.runs if run[0] >= units)
        placed = self.take(units * UNIT - less)
        if not fits or len(self.used) + units > MEMORY:
            assert placed is None
            return
        assert placed is not None
        assert placed.offset == fits[0][1] * UNIT
        self.live.append(placed)

    @rule(size=st.one_of(st.integers(1, SMALL), st.sampled_from([SMALL, SMALL // 2, 64])))
    def take_piece(self, size: int) -> None:
        """No byte of another buffer, and aligned; without a place only where no unit is free."""
        full = not self.runs or len(self.used) == MEMORY
        placed = self.take(size)
        if placed is None:
            assert full
            return
        assert placed.offset % (UNIT // 4 if size > 128 << 10 else 64) == 0
        end = placed.offset + placed.bytes
        for other in self.live + self.waiting:
            assert end <= other.offset or other.offset + other.bytes <= placed.offset
        self.live.append(placed)

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 1000))
    def release(self, which: int) -> None:
        placed = self.live.pop(which % len(self.live))
        check(library().mllm_pool_release(self.pool, placed.number, self.error), self.error)
        if self.ticket is not None:
            self.waiting.append(placed)

    @precondition(lambda self: self.ticket is None)
    @rule()
    def begin(self) -> None:
        self.ticket = ffi.new("uint32_t *")
        check(library().mllm_pool_begin(self.pool, self.ticket, self.error), self.error)

    @rule()
    def end(self) -> None:
        if self.ticket is not None:
            library().mllm_pool_end(self.pool, self.ticket[0])
        self.ticket = None
        self.waiting = []

    @invariant()
    def largest_is_true(self) -> None:
        longest = max((length for length, _ in self.runs), default=0)
        assert self.largest() == min(longest, MEMORY - len(self.used))

    @invariant()
    def waste_is_what_a_buffer_of_that_size_cannot_have(self) -> None:
        left = MEMORY - len(self.used)
        for units in (1, 3, 12):
            usable = sum(length for length, _ in self.runs if length >= units)
            lost = max(0, left - usable) if units <= left else left
            waste = library().mllm_pool_external_waste(self.pool, units * UNIT)
            assert waste - self.statistics().holes == lost * UNIT

    def take(self, size: int) -> Placed | None:
        request = ffi.new("mllm_pool_request *", {"bytes": size})
        buffer, place = ffi.new("mllm_buffer *"), ffi.new("uint64_t[2]")
        if library().mllm_pool_take(self.pool, request, buffer, self.error) != 0:
            return None
        found = library().mllm_pool_place(self.pool, buffer[0], place, place + 1, self.error)
        check(found, self.error)
        assert place[0] + size <= self.addresses * UNIT
        return Placed(buffer[0], place[0], size)

    def statistics(self) -> CData:
        found = ffi.new("mllm_pool_statistics *")
        library().mllm_pool_statistics_of(self.pool, found)
        return found

    def largest(self) -> int:
        return self.statistics().largest // UNIT


Placements.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
TestPlacements = Placements.TestCase
