"""Long runs: memory that does not grow, and answers that stay those of each conversation alone.

The programs compare every answer with the one that its question has alone in a session.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.recipes import build_recipe
from tests.runtime.soak import soak

MEGABYTE = 1_000_000


@pytest.mark.parametrize(
    ("steps", "conversations"),
    [(20_000, 100), pytest.param(1_000_000, 1000, marks=pytest.mark.slow)],
)
def test_steps_leave_memory_as_it_is(
    tmp_path: Path, language_bundle: Path, steps: int, conversations: int
) -> None:
    """Steps of a conversation alone may not allocate: the program's own malloc ends it."""
    told = soak(tmp_path, "soak_steps", language_bundle, str(steps), str(conversations))
    assert told["steps"] >= steps
    assert told["at_a_time"] == conversations
    assert told["answers"] > steps // 25
    assert told["growth_bytes"] < MEGABYTE


@pytest.mark.parametrize("prepares", [(), ("prepares",)])
@pytest.mark.parametrize("days", [1, pytest.param(7, marks=pytest.mark.slow)])
def test_a_week_of_meetings(tmp_path: Path, days: int, prepares: tuple[str, ...]) -> None:
    bundle = tmp_path / "tiny-vlm.mllm_bundle"
    compile_model(Request(model=build_recipe("tiny-vlm", print), output=bundle))
    told = soak(tmp_path, "soak_week", bundle, str(days), *prepares)
    assert told["whole"] > 150 * days
    assert told["chunks"] > told["whole"]
    assert told["left"] > 0
    assert told["waited"] > 0
    assert told["growth_bytes"] < MEGABYTE
