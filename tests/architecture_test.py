"""The tree is what the README draws: layers, names, lengths."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "mllm_compiler"

LAYERS = {
    "errors": 0,
    "weights": 1,
    "dialects": 2,
    "importer": 3,
    "reference": 3,
    "hal": 3,
    "quantisation": 4,
    "passes": 5,
    "backends": 6,
    "bundle": 7,
    "assembly": 8,
    "calibration": 8,
    "cli": 8,
    "compiler": 8,
    "dumps": 8,
    "flops": 8,
    "generation": 8,
    "memory_map": 8,
    "pass_run": 8,
    "pipelines": 8,
    "quantised_bundle": 8,
    "quality": 8,
    "recipes": 8,
    "reduce": 8,
    "report": 8,
    "sessions": 8,
    "universe": 8,
    "validate": 8,
}
"""A module imports its own folder and lower layers; folders of one layer do not import each other,
except those of the driver, the highest."""

DRIVER = max(LAYERS.values())
LONGEST = 400


def python_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


def parts_of(path: Path) -> tuple[str, ...]:
    """The dotted name of a module, as parts: `("mllm_compiler", "bundle", "layout")`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """The line and the absolute name of every import, also of those inside functions."""
    own = parts_of(path)
    package = own if path.name == "__init__.py" else own[:-1]
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            start = ".".join((*base, *((node.module,) if node.module else ())))
            yield from ((node.lineno, f"{start}.{alias.name}") for alias in node.names)


def folder_of(name: str) -> str:
    """The folder or module right below the package that a dotted name lies in."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else ""


def is_upward(folder: str, target: str) -> bool:
    """Whether a module of `folder` may not import from `target`."""
    if folder == target or target not in LAYERS:
        return False
    if LAYERS[folder] == DRIVER:
        return False
    return LAYERS[target] >= LAYERS[folder]


def test_every_folder_has_a_layer() -> None:
    found = {folder_of(".".join(parts_of(path))) for path in python_files(PACKAGE)} - {""}
    assert found == set(LAYERS)


def test_layers_import_downwards_only() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in python_files(PACKAGE)
        if (folder := folder_of(".".join(parts_of(path))))
        for line, name in imports(path)
        if name.split(".")[0] == "mllm_compiler" and is_upward(folder, folder_of(name))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("folder", "target", "upward"),
    [
        ("dialects", "errors", False),
        ("dialects", "passes", True),
        ("importer", "reference", True),
        ("passes", "hal", False),
        ("bundle", "backends", False),
        ("backends", "bundle", True),
        ("compiler", "cli", False),
    ],
)
def test_the_rule_itself(folder: str, target: str, upward: bool) -> None:
    assert is_upward(folder, target) is upward


def test_the_runtime_never_imports_the_compiler() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in python_files(ROOT / "runtime_stub")
        for line, name in imports(path)
        if name.split(".")[0] == "mllm_compiler"
    ]
    assert not wrong, "\n".join(wrong)


def test_no_file_is_long() -> None:
    folders = ("mllm_compiler", "runtime_stub", "models", "tests", "docs")
    files = [
        path
        for folder in folders
        for kind in ("*.py", "*.c", "*.h")
        for path in (ROOT / folder).rglob(kind)
    ]
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    long = [f"{path.relative_to(ROOT)}: {n}" for path, n in lengths.items() if n > LONGEST]
    assert len(files) > 100
    assert not long, "\n".join(long)


def test_no_module_has_no_subject() -> None:
    vague = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert not [path for path in python_files(PACKAGE) if path.stem in vague]


def pass_classes() -> list[tuple[Path, str, str]]:
    """File, class and command-line name of every pass."""
    return [
        (path, node.name, name)
        for path in python_files(PACKAGE / "passes")
        for node in tree_of(path).body
        if isinstance(node, ast.ClassDef) and (name := command_line_name(node))
    ]


def command_line_name(node: ast.ClassDef) -> str:
    """What `name = "..."` of a class that derives from a pass says."""
    if not any(ast.unparse(base).endswith("Pass") for base in node.bases):
        return ""
    for statement in node.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        named = any(ast.unparse(target) == "name" for target in targets)
        if named and isinstance(statement, ast.Assign):
            return str(ast.literal_eval(statement.value))
    return ""


def test_a_pass_has_one_name_everywhere() -> None:
    passes = pass_classes()
    assert len(passes) > 8
    for path, class_name, name in passes:
        stem = path.parent.name if path.stem == "__init__" else path.stem
        if path.parent.parent == PACKAGE / "passes" and path.stem != "__init__":
            stem = path.parent.name
        assert stem == name.replace("-", "_"), path
        assert class_name.lower() == name.replace("-", ""), path
        tests = ROOT / "tests" / "passes"
        beside = [tests / f"{name}.mlir", tests / f"{name.replace('-', '_')}_test.py"]
        assert any(test.exists() for test in beside), f"{name} has no test of its name"


def readme_folders() -> list[str]:
    """The folders and files that the README's picture names."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    picture = text.split("## The picture", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in picture.splitlines() if line.startswith("| ")]
    return [word for row in rows for word in re.findall(r"`([^` ]+/?)`", row.split("|")[2])]


def test_the_readme_draws_the_tree() -> None:
    named = readme_folders()
    assert all((ROOT / word).exists() for word in named), named
    drawn = {word.rstrip("/") for word in named}
    below = {
        f"mllm_compiler/{path.name}"
        for path in PACKAGE.iterdir()
        if path.is_dir() and path.name != "__pycache__"
    }
    at_root = {
        path.name
        for path in ROOT.iterdir()
        if path.is_dir() and not path.name.startswith(".") and path.name not in UNTRACKED
    }
    assert below | at_root - {"mllm_compiler"} <= drawn


UNTRACKED = {"build", "demo", "dist", "__pycache__"}
