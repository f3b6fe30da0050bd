"""Models by the name of their recipe in `models/`, built by the recipe's own program."""

from __future__ import annotations

import difflib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from mllm_compiler.errors import CompileError

FOLDER = Path(__file__).resolve().parent.parent / "models"
"""Where the recipes stand beside the package in a checkout; an installed wheel has none."""

Say = Callable[[str], None]
"""Takes a line of progress."""


def recipe_names(folder: Path = FOLDER) -> list[str]:
    """The names of all recipes."""
    return sorted(path.parent.name for path in folder.glob("*/model.toml"))


def find_model(word: str, say: Say, folder: Path = FOLDER) -> Path:
    """The file or directory that MODEL means; a recipe is built first where needed.

    Raises:
        CompileError: `MLC-U003` nothing is called that, `MLC-U006` the recipe failed.
    """
    path = Path(word)
    if path.exists():
        return path
    if "/" not in word and not path.suffix and word in recipe_names(folder):
        return build_recipe(word, say, folder)
    raise _unknown(word, folder)


def build_recipe(name: str, say: Say, folder: Path = FOLDER) -> Path:
    """Runs `build.py NAME`; the last line that it prints is the model's directory.

    Raises:
        CompileError: `MLC-U006`, it failed.
    """
    command = [sys.executable, str(folder / "build.py"), name]
    last = ""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        for line in process.stderr:
            last = line.strip() or last
            if not last.startswith("error:"):
                say(line.rstrip())
        answer = process.stdout.read().strip()
    if process.returncode != 0 or not answer:
        raise CompileError(
            "MLC-U006",
            f"the recipe ended with status {process.returncode}: "
            f"{last.removeprefix('error:').strip() or 'it printed no directory'}",
            location=name,
            remedy=f"run python models/build.py {name} to see all of it",
        )
    return Path(answer.splitlines()[-1])


def _unknown(word: str, folder: Path) -> CompileError:
    if "/" in word or Path(word).suffix:
        return CompileError(
            "MLC-U003",
            "no such file or directory",
            location=word,
            remedy=_nearest_file(Path(word)),
        )
    near = difflib.get_close_matches(word, recipe_names(folder), n=1)
    names = ", ".join(recipe_names(folder))
    hint = (
        f"did you mean {near[0]}?" if near else f"recipes: {names}" if names else "check the path"
    )
    return CompileError(
        "MLC-U003", "no file, directory or recipe of this name", location=word, remedy=hint
    )


def _nearest_file(path: Path) -> str:
    """A remedy that names the file of that folder whose name is nearest."""
    beside = [entry.name for entry in path.parent.glob("*")] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, beside, n=1)
    return f"did you mean {path.with_name(near[0])}?" if near else "check the path"
