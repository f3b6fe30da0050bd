"""Build a model from its recipe, once, and print the folder that holds it.

    python models/build.py smollm2-135m
    python models/build.py tiny-llama --out build/tiny-llama
    python models/build.py --list

The default folder lies in the cache (`$MLLM_CACHE`, else `~/.cache/mllm-compiler`) and carries a
digest of the recipe, so a changed recipe builds again. A folder appears whole or not at all. The
last line on stdout is the folder; everything else goes to stderr.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import importlib.util
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from models.recipe.packages import RecipeError, cache_root

MODELS = Path(__file__).resolve().parent

_SOURCES = ("*.py", "*.toml", "*.jinja", "*.json", "*.npz")


def recipes() -> list[str]:
    """Return the names of all recipes."""
    return sorted(path.parent.name for path in MODELS.glob("*/model.toml"))


def recipe_digest(name: str) -> str:
    """Return twelve hex digits over everything in the repository that a recipe reads."""
    digest = hashlib.sha256()
    folders = (MODELS / name, MODELS / "recipe")
    for path in sorted(p for folder in folders for kind in _SOURCES for p in folder.glob(kind)):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(MODELS)} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:12]


def built(name: str, out: Path | None = None) -> Path:
    """Return the folder of a built model, after building it where it is not there yet."""
    if name not in recipes():
        near = difflib.get_close_matches(name, recipes(), n=1)
        hint = f"did you mean '{near[0]}'?" if near else "--list shows them"
        raise RecipeError(f"no recipe '{name}' ({hint})")
    folder = out or cache_root() / "models" / f"{name}-{recipe_digest(name)}"
    if (folder / "model.toml").exists():
        return folder
    if folder.exists() and any(folder.iterdir()):
        raise RecipeError(f"{folder} exists and is no model (give an empty or a new --out)")
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{name}-"))
    try:
        _build_into(name, scratch)
        _publish(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _build_into(name: str, scratch: Path) -> None:
    """Run the recipe and copy its `model.toml`, last, beside what it wrote."""
    start = time.monotonic()
    sys.stderr.write(f"building {name}\n")
    _load(name)(scratch)
    shutil.copyfile(MODELS / name / "model.toml", scratch / "model.toml")
    scratch.chmod(0o755)
    sys.stderr.write(f"built {name} in {time.monotonic() - start:.1f} s\n")


def _publish(scratch: Path, folder: Path) -> None:
    """Rename into place; where another process was faster, its result stands."""
    try:
        scratch.replace(folder)
    except OSError:
        if not (folder / "model.toml").exists():
            raise


def _load(name: str) -> Callable[[Path], None]:
    """Import `models/NAME/build.py`, whose folder is no Python name, and return its `build`."""
    path = MODELS / name / "build.py"
    spec = importlib.util.spec_from_file_location(f"recipe_{name.replace('-', '_')}", path)
    if spec is None or spec.loader is None:
        raise RecipeError(f"{path} cannot be imported (is the checkout complete?)")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("Callable[[Path], None]", module.build)


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description="Build a model from its recipe.")
    parser.add_argument("name", nargs="?", help="a folder of models/ with a model.toml")
    parser.add_argument("--out", type=Path, help="where to put it (default: in the cache)")
    parser.add_argument("--list", action="store_true", help="print the names of all recipes")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(recipes()))
        return 0
    if arguments.name is None:
        parser.error("give the name of a recipe, or --list")
    try:
        folder = built(arguments.name, arguments.out)
    except (RecipeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(os.fspath(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
