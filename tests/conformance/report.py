"""Prints how many cases of the standard's suite pass at each level, and writes the figures.

    python tests/conformance/report.py [--json docs/figures/conformance.json]

With `--json` it also writes `passing.txt`, the cases that the tests hold to passing from then on.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.figures import commit, machine
from tests.conformance.cases import KINDS, Case, cases
from tests.conformance.expectations import PASSING
from tests.conformance.runners import (
    CRASHED,
    PASSED,
    REFUSED,
    RUNNERS,
    UNLIFTED,
    WRONG,
    Outcome,
)
from tests.conformance.worker import Worker

Outcomes = dict[str, dict[str, Outcome]]
STATUSES = (PASSED, UNLIFTED, REFUSED, WRONG, CRASHED)


def main() -> int:
    """Runs every case at every level."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures there, and passing.txt")
    target: Path | None = parser.parse_args().json
    outcomes, seconds = run_all(Worker())
    for line in table(outcomes, seconds):
        sys.stdout.write(f"{line}\n")
    if target is not None:
        write(target, outcomes, seconds)
    return 0


def run_all(worker: Worker) -> tuple[Outcomes, dict[str, float]]:
    """The outcome of every case at every level, and how long each level took."""
    outcomes, seconds = Outcomes(), dict[str, float]()
    for level in RUNNERS:
        start = time.perf_counter()
        outcomes[level] = {name: worker.run(level, name) for name in cases()}
        seconds[level] = time.perf_counter() - start
    worker.close()
    return outcomes, seconds


def table(outcomes: Outcomes, seconds: dict[str, float]) -> Iterable[str]:
    """A line for each level and kind of case; then the wrong and the crashed ones."""
    yield f"{'level':7}{'kind':19}{'cases':>7}" + "".join(f"{s:>10}" for s in STATUSES)
    for level, of_level in outcomes.items():
        for kind in KINDS:
            mine = [name for name, case in cases().items() if case.kind == kind]
            counts = Counter(of_level[name].status for name in mine)
            row = "".join(f"{counts[s]:10}" for s in STATUSES)
            yield f"{level:7}{kind:19}{len(mine):7}{row}"
        yield f"{level:7}{seconds[level]:.0f} s"
    for level, of_level in outcomes.items():
        for name, outcome in of_level.items():
            if outcome.status in (WRONG, CRASHED) or (level == "numpy" and outcome.why):
                yield f"{level}: {name}: {outcome.status}: {outcome.why}"


def figures(outcomes: Outcomes, seconds: dict[str, float]) -> dict[str, float]:
    """The named figures; those with a kind in their name count that kind, the others `node`."""
    counted = {
        (level, kind): Counter(of_level[n].status for n, c in cases().items() if c.kind == kind)
        for level, of_level in outcomes.items()
        for kind in KINDS
    }
    sizes = Counter(case.kind for case in cases().values())
    named: dict[str, float] = {"node_total": sizes["node"]}
    named |= {f"{level}_passed": counted[level, "node"][PASSED] for level in outcomes}
    # No case of any kind may be wrong or crash: these count all of them.
    for status in (REFUSED, WRONG, CRASHED):
        named[f"c_{status}"] = sum(counted["c", kind][status] for kind in KINDS)
    for kind in KINDS[1:]:
        stem = kind.replace("-", "_")
        named[f"{stem}_total"] = sizes[kind]
        named |= {f"{stem}_{level}_passed": counted[level, kind][PASSED] for level in outcomes}
    named |= {f"{level}_s": round(spent, 1) for level, spent in seconds.items()}
    return named


def operators(outcomes: Outcomes) -> dict[str, list[int]]:
    """By operator: how many cases there are, and how many pass at each level."""
    counts: dict[str, list[int]] = {}
    for case in cases().values():
        row = counts.setdefault(case.operator, [0] * (1 + len(outcomes)))
        row[0] += 1
        for at, of_level in enumerate(outcomes.values(), 1):
            row[at] += of_level[case.name].status == PASSED
    return dict(sorted(counts.items()))


def write(target: Path, outcomes: Outcomes, seconds: dict[str, float]) -> None:
    """Writes the figures and the list of cases that pass."""
    facts: dict[str, Any] = {"machine": machine(), "commit": commit()}
    facts["figures"] = figures(outcomes, seconds)
    facts["operators"] = operators(outcomes)
    text = json.dumps(facts, indent=1)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(_rows_on_one_line(text) + "\n", encoding="utf-8")
    PASSING.write_text("".join(_passing(case, outcomes) for case in cases().values()))


def _passing(case: Case, outcomes: Outcomes) -> str:
    levels = [level for level in outcomes if outcomes[level][case.name].status == PASSED]
    return f"{case.name} {' '.join(levels)}\n" if levels else ""


def _rows_on_one_line(text: str) -> str:
    """The counts of an operator are one line."""
    parts = text.split("[\n")
    return "[".join([parts[0], *(_joined(part) for part in parts[1:])])


def _joined(part: str) -> str:
    row, _, rest = part.partition("]")
    return " ".join(row.split()) + "]" + rest


if __name__ == "__main__":
    sys.exit(main())
