"""Meeting frames and their captions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

Script = Callable[[str], ModuleType]


@pytest.fixture(scope="module")
def frames(script: Script) -> ModuleType:
    return script("meeting-vlm/frames.py")


def without_photo(frames: ModuleType, count: int) -> list[int]:
    """Seeds whose frames need no package."""
    seeds = (s for s in range(1000) if frames.meeting(s).shared != "a photo")
    return [next(seeds) for _ in range(count)]


def test_a_seed_gives_the_same_frame(frames: ModuleType) -> None:
    for seed in without_photo(frames, 4):
        first, second = frames.frame(seed), frames.frame(seed)
        assert first.size == (224, 224)
        assert first.mode == "RGB"
        assert first.tobytes() == second.tobytes()


def test_captions_parse_into_their_phrases(frames: ModuleType) -> None:
    for seed in range(200):
        shown = frames.meeting(seed)
        assert frames.parse_caption(shown.caption()) == shown.phrases()
        assert shown.agreement(shown.caption()) == (True,) * len(frames.FIELDS)


def test_the_grammar_is_fixed(frames: ModuleType) -> None:
    shown = frames.Meeting(1, True, "a photo", True, False, False)
    wanted = "One person, one speaking, a photo shared, a hand raised, nobody muted, poor light."
    assert shown.caption() == wanted


def test_a_wrong_phrase_is_counted_where_it_stands(frames: ModuleType) -> None:
    shown = frames.Meeting(3, False, "a chart", False, True, True)
    said = shown.caption().replace("no hand", "a hand")
    assert shown.agreement(said) == (True, True, True, False, True, True)
    assert not any(shown.agreement("I see a meeting."))


def test_every_attribute_takes_all_its_values(frames: ModuleType) -> None:
    phrases = [frames.meeting(seed).phrases() for seed in range(600)]
    counts = [len(Counter(column)) for column in zip(*phrases, strict=True)]
    assert counts == [6, 2, 4, 2, 2, 2]


def test_nobody_speaks_alone_while_muted(frames: ModuleType) -> None:
    alone = [m for m in map(frames.meeting, range(600)) if m.people == 1]
    assert alone
    assert not any(m.speaking and m.muted for m in alone)


def test_poor_light_is_darker(frames: ModuleType) -> None:
    means: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(60):
        shown = frames.meeting(seed)
        if shown.shared == "nothing":
            means[shown.light].append(float(np.asarray(frames.frame(seed)).mean()))
    assert np.mean(means[True]) > 1.4 * np.mean(means[False])


def test_a_frame_is_written_in_the_format_of_its_name(
    frames: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (seed,) = without_photo(frames, 1)
    target = tmp_path / "frame.ppm"
    monkeypatch.setattr("sys.argv", ["frames.py", "--seed", str(seed), "--out", str(target)])
    assert frames.main() == 0
    assert capsys.readouterr().out.strip() == frames.meeting(seed).caption()
    assert target.read_bytes().startswith(b"P6\n224 224\n255\n")
