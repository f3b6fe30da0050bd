"""`mllmc explain`: where each operation of a model would run, why, at what cost, and what to do."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mllm_compiler.cli.compile import (
    DIM,
    PLACE,
    SOC,
    TARGET,
    max_partitions_option,
    partition_option,
)
from mllm_compiler.cli.console import progress, table, write_json, write_line

if TYPE_CHECKING:
    from mllm_compiler.passes.device_plan import Call
    from mllm_compiler.passes.place import Placement, Row, Total


@click.command(name="explain")
@click.argument("model")
@click.option("--target", default="c", show_default=True, help=TARGET)
@click.option("--soc", metavar="CHIP", help=SOC)
@click.option("--place", "places", multiple=True, metavar="GRAPH=DEVICE", help=PLACE)
@click.option("--dim", "dims", multiple=True, metavar="DIM", help=DIM)
@click.option("--fallback", default="none", show_default=True, help="Where the rest may run.")
@max_partitions_option
@partition_option
@click.option("--all", "every", is_flag=True, help="A row for each operation, not for each kind.")
@click.option("--html", type=click.Path(path_type=Path), help="Also write a page, in one file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def explain_command(
    context: click.Context,
    model: str,
    target: str,
    soc: str | None,
    places: tuple[str, ...],
    dims: tuple[str, ...],
    fallback: str,
    max_partitions: int,
    partition: str,
    every: bool,
    html: Path | None,
    as_json: bool,
) -> None:
    """Say where each operation would run."""
    from mllm_compiler.bundle.files import atomic_output
    from mllm_compiler.cli.explain_page import facts_of, page
    from mllm_compiler.compiler import Request, compile_model
    from mllm_compiler.hal import STATIC
    from mllm_compiler.hal import target as table_of
    from mllm_compiler.importer import read_dims
    from mllm_compiler.passes.place import explain
    from mllm_compiler.passes.placed_graphs import ALL, read_places
    from mllm_compiler.pipelines import BUCKET, DEVICES, HOST, LIFT, check_target
    from mllm_compiler.recipes import find_model

    where = "mllmc explain"
    check_target(target, where)
    placed = read_places(places)
    if fallback != "none":
        check_target(fallback, f"{where} --fallback")
    program = target
    if fallback == HOST and target in DEVICES:
        program, placed = HOST, {ALL: target, **placed}
    sized = table_of(program).shapes == STATIC
    with progress("finding the model") as shown:
        path: Path = find_model(model, shown.say)
        request = Request(
            model=path,
            target=program,
            soc=soc,
            places=placed,
            dims=read_dims(dims),
            stop_after=(BUCKET if placed or sized else LIFT).passes[-1],
        )
        compiled = compile_model(request, step=shown.step)
        placement = explain(
            compiled.module,
            program,
            fallback,
            placed,
            max_partitions=max_partitions,
            partition=partition,
        )
    placement = replace(placement, target=target)
    facts = facts_of(placement, compiled.name)
    if html is not None:
        with atomic_output(html) as out:
            out.write(page(facts).encode())
    if as_json:
        write_json(facts)
    else:
        _tell(placement, every)
    context.exit(3 if placement.homeless else 0)


def _tell(placement: Placement, every: bool) -> None:
    columns = ("graph", "location", "operation", "type", "home", "why", "MFLOP", "kB")
    if every:
        table("placement", columns, [_row(row) for row in placement.rows])
    else:
        kinds = Counter((row.operation, row.home or "none", row.why) for row in placement.rows)
        rows = [(str(n), *kind) for kind, n in sorted(kinds.items())]
        table("placement", ("count", "operation", "home", "why"), rows)
    _tell_totals(placement)
    _tell_plans(placement)
    for row in placement.homeless:
        write_line(f"{row.location}: '{row.operation}' has no home: {row.why} ({row.remedy})")
    from mllm_compiler.report import percent

    total, lost = len(placement.rows), len(placement.homeless)
    share = percent(placement.share(placement.target))
    write_line(
        f"{total - lost} of {total} operations have a home; {share} of the floating-point "
        f"operations run on {placement.target}"
    )


def _tell_totals(placement: Placement) -> None:
    """What runs where, and what is refused by which kind of rule."""
    columns = ("count", "MFLOP", "kB read", "kB written", "kB weights")
    homes = placement.totals(lambda row: row.home or "none")
    table("totals", ("home", *columns), [(name, *_cells(t)) for name, t in homes.items()])
    rules = placement.totals(lambda row: None if row.refusal is None else row.refusal.rule)
    if rules:
        table("refusals", ("rule", *columns), [(name, *_cells(t)) for name, t in rules.items()])


def _tell_plans(placement: Placement) -> None:
    """The calls of devices, graph by graph, and what the tables say that a run costs."""
    columns = ("graph", "device", "call", "operations", "MFLOP", "kB in", "kB out")
    calls = [
        (plan.graph, plan.device, f"{number} of {len(plan.calls)}", *_call_cells(call))
        for plan in placement.plans.values()
        for number, call in enumerate(plan.calls, 1)
    ]
    if calls:
        table("calls of devices", columns, calls)
    for plan in placement.plans.values():
        facts = plan.facts
        write_line(
            f"{plan.graph}: {facts['device_operations']} of {plan.operations} operations on "
            f"{plan.device}, {plan.cost_us:.1f} us by the tables; {plan.host_us:.1f} us all on "
            f"{plan.host}"
        )


def _call_cells(call: Call) -> tuple[str, ...]:
    sizes = (f"{n / 1e3:.1f}" for n in (call.bytes_in, call.bytes_out))
    return (str(call.operations), f"{call.flops / 1e6:.3f}", *sizes)


def _cells(total: Total) -> tuple[str, ...]:
    sizes = (total.read, total.written, total.weights)
    return (str(total.operations), f"{total.flops / 1e6:.3f}", *(f"{n / 1e3:.1f}" for n in sizes))


def _row(row: Row) -> tuple[str, ...]:
    cost = (f"{row.cost.flops / 1e6:.3f}", f"{row.cost.bytes / 1e3:.1f}")
    return (row.graph, row.location, row.operation, row.type, row.home or "none", row.why, *cost)
