"""The pages of docs/ say what the code says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from mllm_compiler.errors import AREAS, OWN_FAULT, error_codes

ROOT = Path(__file__).resolve().parent.parent
CODE = re.compile(r"MLC-[A-Z]\d{3}")


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = load_generator()


@pytest.mark.parametrize("name", GENERATOR.pages())
def test_a_generated_page_is_up_to_date(name: str) -> None:
    written = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert written == GENERATOR.pages()[name](), "run make docs"


def raised_codes() -> dict[str, str]:
    """Every code that the source names outside the tables, and one file that names it."""
    tables = ROOT / "mllm_compiler" / "errors"
    found: dict[str, str] = {}
    for folder, kinds in (("mllm_compiler", ("*.py",)), ("runtime_stub", ("*.py", "*.c", "*.h"))):
        for path in (path for kind in kinds for path in (ROOT / folder).rglob(kind)):
            if tables not in path.parents:
                for code in CODE.findall(path.read_text(encoding="utf-8")):
                    found[code] = str(path.relative_to(ROOT))
    return found


def test_every_code_that_is_raised_has_its_paragraph() -> None:
    raised, known = raised_codes(), {*error_codes(), OWN_FAULT}
    missing = {code: file for code, file in raised.items() if code not in known}
    assert not missing


def test_every_paragraph_belongs_to_a_code_that_is_raised() -> None:
    assert not [code for code in error_codes() if code not in raised_codes()]


def test_an_example_is_a_located_line_with_a_known_exit_status() -> None:
    for code, entry in error_codes().items():
        assert "error: " in entry.example, code
        assert "\n" not in entry.example, code
        assert entry.exit in GENERATOR.EXITS, code
        assert code[4] in AREAS, code


def test_links_between_the_pages_lead_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"
