"""The rows of the table: written beside those of before, and kept where a vendor refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mllm_compiler.errors import CompileError
from mllm_compiler.recipes import build_recipe
from tests.vendor.measured import Case, measure
from tests.vendor.rows import COLUMNS, Row, lines, write

FULL = Row(
    target="qnn",
    model="tiny-vit",
    form="f16 sm8650",
    accepted="yes",
    operators=0.5,
    block_flops=1.0,
    flops=0.75,
    worst_block=0.9999912,
    whole=0.9998,
    size=2_500_000,
    seconds=3.25,
)
REFUSED = Row(target="rknn", model="tiny-vit", form="f16 rk3588", accepted="no: it crashes")


def test_a_row_shows_what_was_measured_and_nothing_else() -> None:
    head, full, refused = lines([FULL, REFUSED])
    assert head.split()[:3] == list(COLUMNS[:3])
    shown = ["yes", "50.00%", "100.00%", "75.00%", "0.9999912", "0.9998000", "2.500", "3.2"]
    assert full.split()[-8:] == shown
    assert refused.endswith("no: it crashes")


def test_rows_that_were_not_measured_stay(tmp_path: Path) -> None:
    path = tmp_path / "vendor.json"
    write([FULL, REFUSED], path)
    write([Row(target="qnn", model="tiny-vit", form="f16 sm8650", accepted="no: now")], path)
    held = json.loads(path.read_text())["rows"]
    assert [row["accepted"] for row in held] == ["no: now", "no: it crashes"]
    assert all(row["commit"] for row in held)


def test_what_is_refused_has_a_row_with_the_reason(tmp_path: Path) -> None:
    """SM8350 has no halves; the row says so before the fault goes on."""
    path, kept = build_recipe("tiny-vit", lambda line: None), list[Row]()
    with pytest.raises(CompileError):
        measure(Case("qnn", "tiny-vit", path, "f16", "", "sm8350", {}), tmp_path, kept.append)
    (row,) = kept
    assert (row.form, row.whole, row.size) == ("f16 sm8350", None, None)
    assert row.accepted.startswith("no: ")
