"""MODEL: a path, a recipe, or something like one."""

from __future__ import annotations

from pathlib import Path

import pytest

from mllm_compiler.errors import CompileError
from mllm_compiler.recipes import build_recipe, find_model, recipe_names

GOOD = """
import sys
print("building", file=sys.stderr)
print("noise")
print("/models/" + sys.argv[1])
"""
BAD = "import sys\nsys.exit('error: could not download it')"


def recipes(folder: Path, program: str) -> Path:
    for name in ("tiny-one", "tiny-two"):
        (folder / name).mkdir()
        (folder / name / "model.toml").write_text("")
    (folder / "build.py").write_text(program)
    return folder


def test_a_path_wins_over_a_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = recipes(tmp_path, GOOD)
    assert find_model("tiny-one", print, folder) == Path("tiny-one")


def test_the_last_line_that_a_recipe_prints_is_its_folder(tmp_path: Path) -> None:
    said: list[str] = []
    folder = recipes(tmp_path, GOOD)
    assert recipe_names(folder) == ["tiny-one", "tiny-two"]
    assert find_model("tiny-two", said.append, folder) == Path("/models/tiny-two")
    assert said == ["building"]


def test_a_recipe_that_fails_is_told_once(tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(CompileError) as caught:
        build_recipe("tiny-one", said.append, recipes(tmp_path, BAD))
    assert str(caught.value) == (
        "tiny-one: error: the recipe ended with status 1: could not download it [MLC-U006] "
        "(run python models/build.py tiny-one to see all of it)"
    )
    assert said == []


def test_a_recipe_that_prints_nothing_has_failed(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="it printed no directory"):
        build_recipe("tiny-one", print, recipes(tmp_path, ""))


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("tiny-on", "did you mean tiny-one?"),
        ("zebra", "recipes: tiny-one, tiny-two"),
        ("tiny-one/modle.toml", "did you mean"),
        ("no/where.onnx", "check the path"),
    ],
)
def test_an_unknown_word_is_answered_with_its_neighbour(
    word: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = recipes(tmp_path, GOOD)
    monkeypatch.chdir(folder)
    with pytest.raises(CompileError) as caught:
        find_model(word, print, folder)
    assert (caught.value.code, caught.value.exit_code) == ("MLC-U003", 2)
    assert hint in caught.value.remedy


def test_the_recipes_of_the_checkout_are_found() -> None:
    assert {"smollm2-135m", "dinov2-s14", "whisper-base", "meeting-vlm"} <= set(recipe_names())
