"""What tests of vendors share: MediaTek's stand-in, built once, and the table of what they said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.vendor.neuron_networks import build_stand_in

COLUMNS = ("target", "model", "form", "on the accelerator", "least cosine", "MB", "seconds")
ROW = "vendor"
"""The property of a test's report that is a row."""


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the library."""
    return build_stand_in(tmp_path_factory.mktemp("stand-in"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = terminalreporter.getreports("passed")
    rows = [value for r in reports for name, value in r.user_properties if name == ROW]
    if not rows:
        return
    terminalreporter.section("what vendors say")
    lines = [COLUMNS, *sorted(map(tuple, rows))]
    widths = [max(len(line[at]) for line in lines) for at in range(len(COLUMNS))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        terminalreporter.line("  ".join(cells).rstrip())
