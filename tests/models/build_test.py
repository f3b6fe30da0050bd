"""`models/build.py` from the outside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from models import build

SCRIPT = Path(build.__file__)


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SCRIPT, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_last_line_is_the_folder(tmp_path: Path) -> None:
    done = run("tiny-vit", "--out", tmp_path / "vit")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == str(tmp_path / "vit")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["vit"]


def test_the_list_names_every_folder_with_a_model() -> None:
    names = run("--list").stdout.split()
    assert {"smollm2-135m", "dinov2-s14", "whisper-base", "meeting-vlm", "tiny-vlm"} <= set(names)


def test_an_unknown_recipe_names_its_neighbour() -> None:
    done = run("tiny-lama")
    assert done.returncode == 1
    assert done.stderr == "error: no recipe 'tiny-lama' (did you mean 'tiny-llama'?)\n"


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    done = run("tiny-vit", "--out", tmp_path)
    assert done.returncode == 1
    assert "give an empty or a new --out" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_a_built_model_is_not_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLLM_CACHE", str(tmp_path))
    first = build.built("tiny-vit")
    capsys.readouterr()
    assert build.built("tiny-vit") == first
    assert capsys.readouterr().err == ""
    assert first.name == f"tiny-vit-{build.recipe_digest('tiny-vit')}"


def test_a_recipe_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(out: Path) -> None:
        (out / "half").write_text("half")
        raise build.RecipeError("no luck (try again)")

    monkeypatch.setattr(build, "_load", lambda name: fail)
    with pytest.raises(build.RecipeError, match="no luck"):
        build.built("tiny-vit", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
