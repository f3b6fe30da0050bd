"""What tests of vendors share: MediaTek's stand-in, built once, and the table of what they said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.vendor import rows
from tests.vendor.neuron_networks import build_stand_in


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the library."""
    return build_stand_in(tmp_path_factory.mktemp("stand-in"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--figures", type=Path, help="write the table of vendors there too")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    reports = [r for kind in ("passed", "failed") for r in terminalreporter.getreports(kind)]
    found = rows.rows_of(reports)
    if not found:
        return
    terminalreporter.section("what vendors say")
    for line in rows.lines(found):
        terminalreporter.line(line)
    target: Path | None = config.getoption("figures", None)
    if target is not None:
        rows.write(found, target)
