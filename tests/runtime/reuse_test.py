"""Conversations that begin alike: what one has read others take over, and each answers as alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mllm_compiler.compiler import Request as Compilation
from mllm_compiler.compiler import compile_model
from mllm_compiler.recipes import build_recipe
from runtime_stub import Model
from runtime_stub.generation import Request, Statistics
from tests.bundle.small_bundle import KEY

CHUNK = 256
ROOM = 1 << 23


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, made = tmp_path_factory.mktemp("reuse"), dict[str, Path]()
    for name, recipe in (("tiny-llama", None), ("tiny-llama", "kv4"), ("tiny-vlm", None)):
        made[f"{name} {recipe}"] = path = folder / f"{name}-{recipe}.mllm_bundle"
        model = build_recipe(name, print)
        compile_model(Compilation(model=model, output=path, key=KEY, quant=recipe))
    return made


@pytest.fixture
def opened(paths: dict[str, Path], trust: Path) -> Callable[[str], Model]:
    return lambda name: Model.open(paths[name], trust=trust, threads=2)


def alone(model: Model, request: Request) -> list[int]:
    pieces = model.generate(
        request.prompt,
        image=request.image,
        max_new_tokens=request.max_new_tokens,
        temperature=request.temperature,
        seed=request.seed,
    )
    return [piece.token for piece in pieces if piece.token is not None]


def one_by_one(
    model: Model, requests: Sequence[Request], room: int = ROOM, *, prepares: bool = False
) -> tuple[list[list[int]], list[Statistics]]:
    """Tokens and figures of conversations, each of which begins when the last has ended."""
    tokens: list[list[int]] = []
    figures: list[Statistics] = []
    with model.schedule(conversations=1, cache_bytes=room, prepares=prepares) as schedule:
        for request in requests:
            schedule.add(request)
            turns = list(schedule.turns())
            assert [turn.fault for turn in turns if turn.fault] == []
            tokens.append([t.piece.token for t in turns if t.piece.token is not None])
            figures.append(turns[-1].statistics)
    return tokens, figures


def text(words: int, end: str) -> Request:
    drawn = " ".join(f"word{i * i % 97}" for i in range(words))
    return Request(prompt=f"{drawn} {end}", max_new_tokens=20, temperature=1.5, seed=words)


@pytest.mark.parametrize("name", ["tiny-llama None", "tiny-llama kv4"])
def test_whole_chunks_are_taken_over(name: str, opened: Callable[[str], Model]) -> None:
    asked = [text(160, "who?"), text(160, "when?"), text(160, "who?"), text(2, "who?")]
    with opened(name) as model:
        expected = [alone(model, request) for request in asked]
        tokens, figures = one_by_one(model, asked)
    assert tokens == expected
    length = figures[0].prompt_tokens
    common = (length - 40) // CHUNK * CHUNK
    assert common >= 2 * CHUNK
    assert [f.reused for f in figures] == [0, common, (length - 1) // CHUNK * CHUNK, 0]


@pytest.mark.parametrize("prepares", [False, True])
def test_another_image_is_another_beginning(prepares: bool, opened: Callable[[str], Model]) -> None:
    pixels = [np.full((56, 56, 3), shade, np.uint8) for shade in (0, 255)]
    long = replace(text(60, "who?"), image=pixels[0], temperature=4.0, max_new_tokens=60)
    asked = [long, replace(long, image=pixels[1]), replace(long, image=pixels[0].copy())]
    with opened("tiny-vlm None") as model:
        expected = [alone(model, request) for request in asked]
        tokens, figures = one_by_one(model, asked, prepares=prepares)
    assert tokens == expected
    assert expected[0] != expected[1]
    assert [f.reused > 0 for f in figures] == [False, False, True]


def test_what_was_read_gives_way_to_who_needs_the_room(opened: Callable[[str], Model]) -> None:
    """Room for one conversation: the second takes pages of what the first has read."""
    with opened("tiny-llama None") as model:
        asked = [
            text(160, "who?"),
            replace(text(161, "who?"), prompt="x" + "y z" * 500),
            text(160, "who?"),
        ]
        expected = [alone(model, request) for request in asked]
        with model.schedule(conversations=1) as schedule:
            schedule.add(asked[0])
            schedule.add(asked[1])
            list(schedule.turns())
            need = schedule.counted.most_bytes
        tokens, figures = one_by_one(model, asked, room=need)
    assert tokens == expected
    assert [f.reused for f in figures[:2]] == [0, 0]
    assert figures[2].reused < (figures[2].prompt_tokens - 1) // CHUNK * CHUNK
