"""The one table of what vendors say: a row for each model that was compiled and run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.figures import commit, machine

PROPERTY = "vendor"
"""The property of a test's report that is a row."""

COLUMNS = (
    *("target", "model", "form", "accepted", "operators", "FLOPs of blocks", "FLOPs"),
    *("worst block", "whole model", "MB", "seconds"),
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """What a vendor's compiler and runtime say of a model; what was not reached is None.

    Attributes:
        target: The target.
        model: The model.
        form: How weights and values are quantised, and the chip.
        accepted: `yes`, or why the vendor's compiler refuses the model, in its words.
        operators: The share of operators that the accelerator runs.
        block_flops: The share of the blocks' floating-point operations that it runs.
        flops: The same of the whole model.
        worst_block: The least cosine of a result of a block, on the reference's inputs.
        whole: The least cosine of a result of the whole model.
        size: Bytes of what was compiled.
        seconds: How long the vendor's compiler took.
    """

    target: str
    model: str
    form: str
    accepted: str
    operators: float | None = None
    block_flops: float | None = None
    flops: float | None = None
    worst_block: float | None = None
    whole: float | None = None
    size: int | None = None
    seconds: float | None = None

    def cells(self) -> tuple[str, ...]:
        shares = (self.operators, self.block_flops, self.flops)
        return (
            *(self.target, self.model, self.form, self.accepted),
            *("" if share is None else f"{share:.2%}" for share in shares),
            *("" if c is None else f"{c:.7f}" for c in (self.worst_block, self.whole)),
            "" if self.size is None else f"{self.size / 1e6:.3f}",
            "" if self.seconds is None else f"{self.seconds:.1f}",
        )


def record(keep: Callable[[str, object], None], row: Row) -> None:
    """Gives a row to the report of the test that runs."""
    keep(PROPERTY, asdict(row))


def rows_of(reports: Sequence[Any]) -> list[Row]:
    """The rows of some tests' reports, in the table's order."""
    found = [v for r in reports for name, v in r.user_properties if name == PROPERTY]
    return sorted((Row(**v) for v in found), key=lambda row: row.cells()[:3])


def lines(rows: Sequence[Row]) -> list[str]:
    """The table."""
    cells = [COLUMNS, *(row.cells() for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(COLUMNS))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]


def write(rows: Sequence[Row], path: Path) -> None:
    """Writes the rows, each with the commit it was measured at; those not measured now stay."""
    kept: dict[str, Any] = {}
    if path.exists():
        kept = {_key(row): row for row in json.loads(path.read_text(encoding="utf-8"))["rows"]}
    now = commit()  # Before the file of figures changes the tree.
    kept |= {_key(asdict(row)): {**asdict(row), "commit": now} for row in rows}
    made = {"machine": machine(), "rows": [kept[key] for key in sorted(kept)]}
    path.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


def _key(row: dict[str, Any]) -> str:
    return " ".join(row[name] for name in ("target", "model", "form"))
