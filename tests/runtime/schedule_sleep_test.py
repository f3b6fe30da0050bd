"""Conversations that sleep while more urgent ones have their room, then go on as if nothing was.

The truth is the same prompt asked alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mllm_compiler.compiler import Request as Compilation
from mllm_compiler.compiler import compile_model
from mllm_compiler.recipes import build_recipe
from runtime_stub import Model
from runtime_stub.generation import Request
from runtime_stub.schedule import HIGH, LOW, NORMAL, Schedule, Turn
from tests.bundle.small_bundle import KEY
from tests.runtime.kv_bench import largest_file
from tests.runtime.kv_spill_test import spill_file
from tests.runtime.schedule_test import alone

PAGE_TOKENS = 256
LONG = "word and " * 75


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str | None, Path]:
    """With a cache of floats, and with one whose old pages have 4 bits."""
    made: dict[str | None, Path] = {}
    for quant in (None, "kv4"):
        made[quant] = path = tmp_path_factory.mktemp("sleep") / "tiny-llama.mllm_bundle"
        model = build_recipe("tiny-llama", print)
        compile_model(Compilation(model=model, output=path, key=KEY, quant=quant))
    return made


@pytest.fixture
def model(
    request: pytest.FixtureRequest, bundles: dict[str | None, Path], trust: Path
) -> Iterator[Model]:
    quant = getattr(request, "param", None)
    with Model.open(bundles[quant], trust=trust, threads=1) as opened:
        yield opened


def long_request(seed: int) -> Request:
    """Three pages; all begin alike, so that they share two of them."""
    return Request(prompt=LONG + str(seed), max_new_tokens=25, temperature=2.0, seed=seed)


@contextmanager
def schedule_of(model: Model, pages: int, folder: Path, **more: bool) -> Iterator[Schedule]:
    """Room for so many pages; a file for twenty."""
    with model.schedule() as probe:
        probe.add(Request(prompt="a", max_new_tokens=1))
        list(probe.turns())
        page = probe.counted.most_bytes
    spill = (folder, 20 * page)
    with model.schedule(cache_bytes=pages * page, spill=spill, **more) as schedule:
        yield schedule


def played(
    schedule: Schedule, at: dict[int, Callable[[], int]] | None = None
) -> tuple[dict[int, list[int]], list[Turn]]:
    """Tokens of each conversation; more of them come after so many turns."""
    tokens: dict[int, list[int]] = {}
    ends: list[Turn] = []
    for count, turn in enumerate(schedule.turns()):
        if turn.piece.token is None:
            ends.append(turn)
        else:
            tokens.setdefault(turn.conversation, []).append(turn.piece.token)
        if at is not None and count in at:
            at[count]()
    return tokens, ends


@pytest.mark.parametrize("model", [None, "kv4"], indirect=True)
@pytest.mark.parametrize("prepares", [False, True])
def test_an_urgent_one_has_its_turn_and_the_others_go_on(
    model: Model, tmp_path: Path, prepares: bool
) -> None:
    asked = [long_request(seed) for seed in range(5)]
    expected = [alone(model, request) for request in asked]
    with schedule_of(model, 6, tmp_path, prepares=prepares) as schedule:
        for request, priority in zip(asked, (LOW, NORMAL, LOW, NORMAL), strict=False):
            schedule.add(request, priority=priority)
        tokens, ends = played(schedule, {12: lambda: schedule.add(asked[4], priority=HIGH)})
        counted = schedule.counted
    assert [turn.fault for turn in ends] == [None] * 5
    assert [tokens[number] for number in range(5)] == expected
    assert counted.slept == counted.woke >= 1
    assert (counted.running, counted.waiting) == (0, 0)
    assert ends[0].conversation == 4 or prepares, "the urgent one did not wait for an end"


def test_they_wake_in_the_order_of_priority(model: Model, tmp_path: Path) -> None:
    asked = [long_request(seed) for seed in range(3)]
    expected = [alone(model, request) for request in asked]
    with schedule_of(model, 6, tmp_path) as schedule:
        schedule.add(asked[0], priority=LOW)
        schedule.add(asked[1], priority=NORMAL)
        large = Request(prompt=LONG * 2, max_new_tokens=9)
        at = {
            8: lambda: schedule.add(large, priority=HIGH),
            10: lambda: schedule.add(asked[2], priority=LOW),
        }
        tokens, ends = played(schedule, at)
        assert schedule.counted.slept == 2
    assert [turn.conversation for turn in ends[:2]] == [2, 1]
    assert [tokens[number] for number in (0, 1, 3)] == expected


def test_nobody_sleeps_for_an_equal_or_in_vain(model: Model, tmp_path: Path) -> None:
    with schedule_of(model, 6, tmp_path) as schedule:
        for priority in (HIGH, LOW, LOW, HIGH):
            schedule.add(long_request(priority), priority=priority)
        list(schedule.turns())
        assert schedule.counted.slept == 0, "high began first, and low are equals"
    with schedule_of(model, 6, tmp_path) as schedule:
        for priority in (NORMAL, LOW):
            schedule.add(long_request(priority), priority=priority)
        large = Request(prompt=LONG * 2, max_new_tokens=9)
        slept: list[int] = []

        def note() -> int:
            slept.append(schedule.counted.slept)
            return 0

        played(schedule, {8: lambda: schedule.add(large, priority=NORMAL), 14: note})
        assert slept == [0], "one alone would not have made enough room"
        assert schedule.counted.slept == 1, "but with the other's end it did"


def test_a_full_disk_lets_the_urgent_one_wait(model: Model, tmp_path: Path) -> None:
    asked = [long_request(seed) for seed in range(3)]
    expected = [alone(model, request) for request in asked]
    with schedule_of(model, 6, tmp_path) as schedule, largest_file(1000):
        for request in asked[:2]:
            schedule.add(request, priority=LOW)
        tokens, ends = played(schedule, {8: lambda: schedule.add(asked[2], priority=HIGH)})
        assert schedule.counted.slept == 0
    assert [turn.fault for turn in ends] == [None] * 3
    assert [tokens[number] for number in range(3)] == expected


def test_a_damaged_file_ends_the_one_that_slept(model: Model, tmp_path: Path) -> None:
    asked = [long_request(seed) for seed in range(3)]
    expected = [alone(model, request) for request in asked]

    def damage() -> int:
        assert schedule.counted.slept == 1
        with spill_file(tmp_path).open("r+b") as file:
            return file.write(b"\1" * 100)

    with schedule_of(model, 6, tmp_path) as schedule:
        for request in asked[:2]:
            schedule.add(request, priority=LOW)
        at = {8: lambda: schedule.add(asked[2], priority=HIGH), 12: damage}
        tokens, ends = played(schedule, at)
    faults = {turn.conversation: turn.fault for turn in ends}
    assert faults[0] is faults[2] is None
    lost = faults[1]
    assert lost is not None
    assert lost.code == "MLC-X053"
    assert [tokens[number] for number in (0, 2)] == [expected[0], expected[2]]
