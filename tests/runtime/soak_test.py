"""Long runs: memory that does not grow, and answers that stay those of each conversation alone.

The programs compare every answer with the one that its question has alone in a session.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mllm_compiler.compiler import Request, compile_model
from mllm_compiler.recipes import build_recipe
from tests.runtime.soak import soak
from tests.runtime.text_models import write_small_pages

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


@pytest.mark.parametrize(
    ("events", "seed"),
    [(2000, 1), *(pytest.param(30_000, n, marks=pytest.mark.slow) for n in (2, 3))],
)
def test_a_pool_under_pressure(tmp_path: Path, events: int, seed: int) -> None:
    """The program compares every step with that of a twin that never sleeps."""
    bundle = write_small_pages(tmp_path / "small.mllm_bundle", page_tokens=64, tokens=320)
    told = soak(tmp_path, "soak_pressure", bundle, tmp_path, str(events), str(seed))
    assert told["compared"] > 4 * events
    assert told["woken_pages"] > 20 * told["file_pages"], "places in the file are used again"
    for what in ("restored", "dropped", "admitted", "adopted_tokens", "demoted_pages"):
        assert told[what] > 0, what
    assert told["growth_bytes"] < MEGABYTE
