"""Makes `models.recipe` importable: the recipes are scripts of the checkout, not a package."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))


@pytest.fixture(scope="session")
def script() -> Callable[[str], ModuleType]:
    """Import a file of `models/` by its path below it, whatever its folder is called."""

    def load(path: str) -> ModuleType:
        name = path.removesuffix(".py").replace("/", "_").replace("-", "_")
        spec = importlib.util.spec_from_file_location(name, ROOT / "models" / path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Build a tiny recipe once a session, outside the user's cache."""
    from models.build import built

    made: dict[str, Path] = {}

    def build(name: str) -> Path:
        if name not in made:
            made[name] = built(name, tmp_path_factory.mktemp("models") / name)
        return made[name]

    return build
