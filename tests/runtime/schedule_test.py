"""Conversations that take turns over one session: each answer is the one that it gives alone.

The truth is the same prompt asked alone, which `answer_test` compares with ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from mllm_compiler.compiler import Request as Compilation
from mllm_compiler.compiler import compile_model
from mllm_compiler.recipes import build_recipe
from runtime_stub import Model, RuntimeFailure
from runtime_stub.generation import Request
from runtime_stub.library import CData, ffi
from runtime_stub.schedule import HIGH, LOW, Schedule
from tests.bundle.small_bundle import KEY

PAGE_TOKENS = 256


@pytest.fixture
def recipe(tmp_path: Path, trust: Path) -> Callable[[str], Model]:
    def opened(name: str) -> Model:
        bundle = tmp_path / f"{name}.mllm_bundle"
        compile_model(Compilation(model=build_recipe(name, print), output=bundle, key=KEY))
        return Model.open(bundle, trust=trust, threads=1)

    return opened


def alone(model: Model, request: Request) -> list[int]:
    pieces = model.generate(
        request.prompt,
        image=request.image,
        max_new_tokens=request.max_new_tokens,
        temperature=request.temperature,
        seed=request.seed,
        drafts=request.drafts,
    )
    return [piece.token for piece in pieces if piece.token is not None]


def together(schedule: Schedule) -> tuple[dict[int, list[int]], list[int]]:
    """The tokens of each conversation, and whose turn it was."""
    made: dict[int, list[int]] = {}
    order: list[int] = []
    for turn in schedule.turns():
        assert turn.fault is None
        made.setdefault(turn.conversation, [])
        if turn.piece.token is not None:
            made[turn.conversation].append(turn.piece.token)
            order.append(turn.conversation)
        else:
            assert turn.statistics.new_tokens == len(made[turn.conversation])
    return made, order


def requests(count: int) -> Sequence[Request]:
    """Short and long prompts, greedy and drawn, some with guesses."""
    rng = np.random.default_rng(count)
    return [
        Request(
            prompt=f"{seed} and " * int(rng.choice([1, 5, 60, 150])),
            max_new_tokens=int(rng.integers(1, 30)),
            temperature=float(rng.choice([0.0, 2.0])),
            seed=seed,
            drafts=int(rng.choice([0, 3])),
        )
        for seed in range(count)
    ]


@pytest.mark.parametrize("prepares", [False, True])
@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen2"])
def test_answers_are_those_of_each_alone(
    recipe: Callable[[str], Model], name: str, prepares: bool
) -> None:
    asked = requests(12)
    with recipe(name) as model:
        expected = [alone(model, request) for request in asked]
        room = 1 << 22 if prepares else 0
        with model.schedule(conversations=5, cache_bytes=room, prepares=prepares) as schedule:
            numbers = [schedule.add(request) for request in asked]
            made, order = together(schedule)
            assert schedule.counted.most == 5
            assert schedule.counted.prepared == (len(asked) if prepares else 0)
            assert schedule.counted.running == schedule.counted.waiting == 0
        assert [made[number] for number in numbers] == expected
        assert order != sorted(order)
        assert alone(model, asked[3]) == expected[3]


@pytest.mark.parametrize("prepares", [False, True])
def test_images_of_several_conversations(recipe: Callable[[str], Model], prepares: bool) -> None:
    rng = np.random.default_rng(0)
    pixels = [rng.integers(0, 256, (56, 56, 3), dtype=np.uint8) for _ in range(3)]
    asked = [
        Request(prompt="who " * (1 + 90 * i), image=p, max_new_tokens=12, temperature=2.0)
        for i, p in enumerate(pixels)
    ]
    with recipe("tiny-vlm") as model:
        expected = [alone(model, request) for request in asked]
        assert len({tuple(tokens) for tokens in expected}) == 3
        with model.schedule(prepares=prepares) as schedule:
            numbers = [schedule.add(request) for request in asked]
            made, _ = together(schedule)
        assert [made[number] for number in numbers] == expected
        assert model.counters.copied_bytes == 0


def test_a_long_prompt_does_not_hold_up_the_others(recipe: Callable[[str], Model]) -> None:
    """While its chunks are read, one a turn, each other conversation gets a token a turn."""
    with recipe("tiny-llama") as model, model.schedule() as schedule:
        short = [schedule.add(Request(prompt="a", max_new_tokens=40)) for _ in range(2)]
        long = schedule.add(Request(prompt="word and " * 150, max_new_tokens=2))
        _, order = together(schedule)
        chunks = schedule.counted.chunks - 2
        before = order[: order.index(long)]
        assert chunks > 3
        assert {number: before.count(number) for number in short} == dict.fromkeys(short, chunks)


def test_turns_follow_priorities(recipe: Callable[[str], Model]) -> None:
    with recipe("tiny-llama") as model, model.schedule() as schedule:
        low = schedule.add(Request(prompt="a", max_new_tokens=40), priority=LOW)
        high = schedule.add(Request(prompt="a", max_new_tokens=40), priority=HIGH)
        _, order = together(schedule)
        assert order[10:40].count(high) == 4 * order[10:40].count(low)


def test_admission_comes_before_computing(recipe: Callable[[str], Model]) -> None:
    with recipe("tiny-llama") as model:
        with model.schedule() as schedule:
            schedule.add(Request(prompt="a", max_new_tokens=2))
            together(schedule)
            page = schedule.counted.most_bytes
        assert page % (PAGE_TOKENS * 4) == 0
        with model.schedule(cache_bytes=2 * page) as schedule:
            for _ in range(3):
                schedule.add(Request(prompt="a", max_new_tokens=6))
            with pytest.raises(RuntimeFailure, match="all conversations may take") as caught:
                schedule.add(Request(prompt="word and " * 150, max_new_tokens=2))
            assert caught.value.code == "MLC-X042"
            with pytest.raises(RuntimeFailure, match="tokens, the model's cache holds"):
                schedule.add(Request(prompt="word and " * 1500))
            assert schedule.counted.chunks == 0
            assert schedule.counted.waiting == 3
            made, order = together(schedule)
            assert schedule.counted.most == 2
            assert schedule.counted.most_bytes == 2 * page
        assert len(made) == 3
        assert 2 not in order[:10]


@pytest.mark.parametrize("prepares", [False, True])
def test_a_fault_ends_one_conversation(recipe: Callable[[str], Model], prepares: bool) -> None:
    sound = np.zeros(100, np.float32)
    with recipe("tiny-llama") as model, model.schedule(prepares=prepares) as schedule:
        first = schedule.add(Request(prompt="a", max_new_tokens=9))
        broken = schedule.add(Request(prompt="a", audio=sound, max_new_tokens=9))
        turns = list(schedule.turns())
        faults = [turn for turn in turns if turn.fault is not None]
        assert [turn.conversation for turn in faults] == [broken]
        assert "takes no sound" in str(faults[0].fault)
        assert sum(turn.conversation == first for turn in turns) == 10


@pytest.mark.parametrize("prepares", [False, True])
def test_a_conversation_can_be_ended(recipe: Callable[[str], Model], prepares: bool) -> None:
    with recipe("tiny-llama") as model, model.schedule(prepares=prepares) as schedule:
        first = schedule.add(Request(prompt="a", max_new_tokens=50))
        other = schedule.add(Request(prompt="b", max_new_tokens=5))
        seen: list[int] = []
        for turn in schedule.turns():
            seen.append(turn.conversation)
            if seen.count(first) == 2:
                schedule.end(first)
                schedule.end(first)
        assert seen.count(first) == 2
        assert seen.count(other) == 6


def test_what_is_not_in_a_cache_alone_is_refused(recipe: Callable[[str], Model]) -> None:
    with recipe("tiny-whisper") as model, pytest.raises(RuntimeFailure) as caught:
        model.schedule()
    assert caught.value.code == "MLC-X041"

    def somebody() -> CData:
        return ffi.cast("mllm_generator *", 1)

    with (
        recipe("tiny-llama") as model,
        model.schedule() as schedule,
        pytest.raises(RuntimeFailure, match="one conversation only"),
    ):
        schedule.add(Request(prompt="a", drafts=2, draft=somebody))
