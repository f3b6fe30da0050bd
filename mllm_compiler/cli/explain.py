"""`mllmc explain`: where each operation of a model would run, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from mllm_compiler.cli.console import progress, table, write_json, write_line

if TYPE_CHECKING:
    from mllm_compiler.passes.place import Placement, Row


@click.command(name="explain")
@click.argument("model")
@click.option("--target", default="c", show_default=True, help="The backend: c or numpy.")
@click.option("--fallback", default="none", show_default=True, help="Where the rest may run.")
@click.option("--all", "every", is_flag=True, help="A row for each operation, not for each kind.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def explain_command(
    context: click.Context, model: str, target: str, fallback: str, every: bool, as_json: bool
) -> None:
    """Say where each operation would run."""
    from pathlib import Path

    from mllm_compiler.compiler import Request, compile_model
    from mllm_compiler.passes.place import explain
    from mllm_compiler.pipelines import LIFT, check_target
    from mllm_compiler.recipes import find_model

    where = "mllmc explain"
    check_target(target, where)
    if fallback != "none":
        check_target(fallback, f"{where} --fallback")
    with progress("finding the model") as shown:
        path: Path = find_model(model, shown.say)
        request = Request(model=path, target=target, stop_after=LIFT.passes[-1])
        placement = explain(compile_model(request, step=shown.step).module, target, fallback)
    if as_json:
        write_json(_facts(placement))
    else:
        _tell(placement, every)
    context.exit(3 if placement.homeless else 0)


def _tell(placement: Placement, every: bool) -> None:
    columns = ("graph", "location", "operation", "type", "home", "why", "MFLOP")
    if every:
        table("placement", columns, [_row(row) for row in placement.rows])
    else:
        kinds = Counter((row.operation, row.home or "none", row.why) for row in placement.rows)
        rows = [(str(n), *kind) for kind, n in sorted(kinds.items())]
        table("placement", ("count", "operation", "home", "why"), rows)
    for row in placement.homeless:
        write_line(f"{row.location}: '{row.operation}' has no home: {row.why} ({row.remedy})")
    from mllm_compiler.report import percent

    total, lost = len(placement.rows), len(placement.homeless)
    share = percent(placement.share(placement.target))
    write_line(
        f"{total - lost} of {total} operations have a home; {share} of the floating-point "
        f"operations run on {placement.target}"
    )


def _row(row: Row) -> tuple[str, ...]:
    flops = f"{row.cost.flops / 1e6:.3f}"
    return (row.graph, row.location, row.operation, row.type, row.home or "none", row.why, flops)


def _facts(placement: Placement) -> dict[str, object]:
    return {
        "target": placement.target,
        "flops_share": placement.share(placement.target),
        "homeless": len(placement.homeless),
        "operations": list(_operations(placement.rows)),
    }


def _operations(rows: Iterable[Row]) -> Iterable[dict[str, object]]:
    for row in rows:
        yield {
            "graph": row.graph,
            "location": row.location,
            "operation": row.operation,
            "type": row.type,
            "home": row.home,
            "why": row.why,
            "remedy": row.remedy,
            "flops": row.cost.flops,
            "bytes": row.cost.bytes,
        }
