"""Fixtures of the runtime's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime_stub import Model
from tests.runtime.internals import Internals
from tests.runtime.kv_bench import Bench
from tests.runtime.text_models import language_module, vision_module, write_text_bundle


@pytest.fixture(scope="session")
def internals(tmp_path_factory: pytest.TempPathFactory) -> Internals:
    return Internals(tmp_path_factory.mktemp("internals"))


@pytest.fixture(scope="session")
def language_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("language") / "language.mllm_bundle"
    return write_text_bundle(path, *language_module())


@pytest.fixture(scope="session")
def vision_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vision") / "vision.mllm_bundle"
    return write_text_bundle(path, *vision_module())


@pytest.fixture
def language(language_bundle: Path, trust: Path) -> Model:
    return Model.open(language_bundle, trust=trust, threads=1)


@pytest.fixture
def vision(vision_bundle: Path, trust: Path) -> Model:
    return Model.open(vision_bundle, trust=trust, threads=1)


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A pool of nine pages, and conversations in it."""
    made = Bench()
    yield made
    made.close()
