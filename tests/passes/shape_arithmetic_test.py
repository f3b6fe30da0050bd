"""After lifting no tensor holds a shape: dims are expressions of types and attributes."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.dialects import make_context
from mllm_compiler.importer import Imported, import_model
from mllm_compiler.pass_run import run_passes
from mllm_compiler.pipelines import pass_class, pass_names
from models.build import built

EXPORTS = sorted((Path(__file__).parent / "exports").rglob("*.onnx"))
RECIPES = sorted(p.name for p in Path("models").glob("tiny-*"))


def shapes_read(module: ModuleOp) -> list[str]:
    """The operators that make a tensor of a shape; nothing else does."""
    return [op.name for op in module.walk() if op.name in ("onnx.Shape", "onnx.Size")]


def lifted(imported: Imported) -> ModuleOp:
    passes = [pass_class(name)() for name in pass_names("lift")]
    run_passes(imported.module, passes, make_context(imported.store))
    return imported.module


@pytest.mark.parametrize("recipe", RECIPES)
def test_no_recipe_computes_shapes(recipe: str, tmp_path: Path) -> None:
    assert not shapes_read(lifted(import_model(built(recipe, tmp_path / recipe))))


@pytest.mark.parametrize("file", EXPORTS, ids=lambda file: file.stem)
def test_no_export_computes_shapes(file: Path) -> None:
    assert not shapes_read(lifted(import_model(file)))


def test_exports_do_compute_shapes_before_they_are_lifted() -> None:
    assert len([name for f in EXPORTS for name in shapes_read(import_model(f).module)]) > 20
