"""`mllmc check`: gates on a bundle, for continuous integration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mllm_compiler.cli.console import progress, table, write_json, write_line

if TYPE_CHECKING:
    from mllm_compiler.quality.bisect import Bisected
    from mllm_compiler.quality.check import Checked

PATH = click.Path(path_type=Path)
WORST = 10
"""How many cosines the table on a terminal shows; the report has all."""


@click.group(name="check", no_args_is_help=True)
def check_group() -> None:
    """Hold a bundle to gates."""


@check_group.command()
@click.argument("bundle", type=PATH)
@click.option("--baseline", required=True, metavar="MODEL", help="The float model, or a bundle.")
@click.option("--data", required=True, type=PATH, help="Texts, sounds, pictures or tensors.")
@click.option("--reference", type=PATH, help="The same model and recipe for the target numpy.")
@click.option("--thresholds", type=PATH, help="What to reach: FILE.toml.")
@click.option("--window", type=click.IntRange(2), default=512, show_default=True)
@click.option(
    "--piece", type=click.IntRange(1), default=256, help="Tokens a run; the past is kept."
)
@click.option("--tokens", type=click.IntRange(2), default=1536, show_default=True)
@click.option("--bisect", type=PATH, help="Where a gate fails: write a recipe that passes.")
@click.option("--quant", metavar="RECIPE", help="The bundle's recipe, for --bisect.")
@click.option("--calibration", type=PATH, help="Samples of the recipe, for --bisect.")
@click.option("--junit", "junit_file", type=PATH, help="Also write JUnit XML.")
@click.option("--html", type=PATH, help="Also write a page, in one file.")
@click.option("--trust", type=PATH, help="Believe the keys of this file.")
@click.option("--allow-unsigned", is_flag=True, help="Accept a bundle that nobody trusted signed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def accuracy(
    context: click.Context,
    bundle: Path,
    baseline: str,
    data: Path,
    reference: Path | None,
    thresholds: Path | None,
    window: int,
    piece: int,
    tokens: int,
    bisect: Path | None,
    quant: str | None,
    calibration: Path | None,
    junit_file: Path | None,
    html: Path | None,
    trust: Path | None,
    allow_unsigned: bool,
    as_json: bool,
) -> None:
    """Compare a bundle with its quantised reference and with its float model."""
    from mllm_compiler.bundle.files import atomic_output, check_output
    from mllm_compiler.bundle.trust import read_trust
    from mllm_compiler.bundle.verify import Policy
    from mllm_compiler.cli.check_page import facts_of, page
    from mllm_compiler.errors import CompileError
    from mllm_compiler.quality.bisect import bisect as bisected
    from mllm_compiler.quality.check import SUFFIX, Asked, check_accuracy
    from mllm_compiler.quality.junit import junit
    from mllm_compiler.quality.thresholds import Thresholds, read_thresholds
    from mllm_compiler.recipes import find_model

    limits = Thresholds() if thresholds is None else read_thresholds(thresholds)
    if (bisect is None) != (quant is None) or (bisect and Path(baseline).suffix == SUFFIX):
        text = "--bisect needs --quant, and a model as --baseline: it compiles"
        remedy = "give the recipe and the model, or leave --bisect and --quant out"
        raise CompileError("MLC-U007", text, location="mllmc check accuracy", remedy=remedy)
    for output in (junit_file, html, bisect):
        if output is not None:
            check_output(output)
    policy = Policy(trust=read_trust(trust), allow_unsigned=allow_unsigned)
    with progress("finding the model") as shown:
        plain = Path(baseline)
        asked = Asked(
            baseline=plain if plain.suffix == SUFFIX else find_model(baseline, shown.say),
            data=data,
            reference=reference,
            thresholds=limits,
            window=window,
            piece=piece,
            tokens=tokens,
        )
        shown.step("running the models")
        checked = check_accuracy(bundle, asked, policy, trust=trust)
        found = None
        if bisect is not None and quant is not None and not checked.passes:
            found = bisected(
                asked.baseline,
                quant,
                asked,
                checked.suspects,
                calibration=calibration,
                step=shown.step,
            )
            if found is not None:
                with atomic_output(bisect) as out:
                    out.write(found.text.encode())
    if junit_file is not None:
        with atomic_output(junit_file) as out:
            out.write(junit(checked.bundle, checked.gates))
    if html is not None:
        with atomic_output(html) as out:
            out.write(page(checked).encode())
    if as_json:
        write_json(facts_of(checked, found))
    else:
        _tell(checked)
        if bisect is not None and not checked.passes:
            _tell_bisected(found, bisect)
    context.exit(0 if checked.passes else 3)


def _tell(checked: Checked) -> None:
    from mllm_compiler.cli.check_page import row_of

    for group in dict.fromkeys(gate.group for gate in checked.gates):
        gates = [gate for gate in checked.gates if gate.group == group]
        shown = gates if group == "quality" else gates[:WORST]
        table(group, (group, "value", "asked", "verdict"), [row_of(gate) for gate in shown])
        if len(shown) < len(gates):
            write_line(f"... and {len(gates) - len(shown)} more")
    write_line(f"fidelity: {checked.fidelity}")
    worst = sorted(checked.nodes, key=lambda node: -node.error)[:WORST]
    if worst:
        rows = [(node.name, f"{node.cosine:.6f}", f"{node.error:.2e}") for node in worst]
        table("layers", ("layer, worst first", "cosine with float", "error"), rows)
    failed = [gate for gate in checked.gates if not gate.passes]
    count = len(checked.gates)
    write_line(f"{count - len(failed)} of {count} gates pass" if failed else f"{count} gates pass")


def _tell_bisected(found: Bisected | None, path: Path) -> None:
    if found is None:
        write_line("bisection: the gates fail even where all of these layers are kept")
        return
    for name in found.kept:
        write_line(f"keep {name}")
    write_line(
        f"bisection: all gates pass with {len(found.kept)} layers kept ({found.tries} recipes "
        f"tried): mllmc compile --quant {path}"
    )
