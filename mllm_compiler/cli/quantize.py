"""`mllmc quantize`: a quantised bundle of a model and samples; new samples refresh its scales."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mllm_compiler.cli.compile import SOC, TARGET
from mllm_compiler.cli.console import progress, write_json, write_line
from mllm_compiler.cli.faults import say

if TYPE_CHECKING:
    from mllm_compiler.bundle.typed_json import Json
    from mllm_compiler.compiler import Compiled
    from mllm_compiler.quantisation.drift import Drift

PATH = click.Path(path_type=Path)
WHERE = "mllmc quantize"
SHOWN = 8


@click.command(name="quantize")
@click.argument("model")
@click.option("--recipe", metavar="RECIPE", help="A built-in recipe or a .toml file.")
@click.option("--data", type=PATH, help="Texts, pictures, WAV files or tensors to calibrate on.")
@click.option("--refresh", is_flag=True, help="Take OUT's recipe; new scales from new data.")
@click.option("--target", default="c", show_default=True, help=TARGET)
@click.option("--soc", metavar="CHIP", help=SOC)
@click.option("--key", type=PATH, help="Sign with this key; else with your own, made on first use.")
@click.option("--unsigned", is_flag=True, help="Do not sign.")
@click.option("-o", "--output", type=PATH, required=True, help="The bundle.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def quantize_command(
    model: str,
    recipe: str | None,
    data: Path | None,
    refresh: bool,
    target: str,
    soc: str | None,
    key: Path | None,
    unsigned: bool,
    output: Path,
    as_json: bool,
) -> None:
    """Quantise a model into a bundle, or refresh the scales of one from new data."""
    from mllm_compiler.bundle.trust import signing_key
    from mllm_compiler.compiler import Request, compile_model
    from mllm_compiler.errors import CompileError
    from mllm_compiler.quantisation.drift import drifts
    from mllm_compiler.quantised_bundle import QuantisationRecord, read_record
    from mllm_compiler.recipes import find_model

    if refresh == (recipe is not None):
        text = "give either --recipe or --refresh, which takes the recipe of the bundle"
        raise CompileError("MLC-U007", text, location=WHERE, remedy="leave one of them out")
    if refresh and data is None:
        text = "--refresh takes new scales from --data"
        raise CompileError("MLC-U007", text, location=WHERE, remedy="name a folder with --data")
    if key is not None and unsigned:
        text = "--key and --unsigned exclude each other"
        raise CompileError("MLC-U007", text, location=WHERE, remedy="leave one of them out")
    old = read_record(output) if refresh else QuantisationRecord()
    with old.recipe_file(recipe) as path, progress("finding the model") as shown:
        request = Request(
            model=find_model(model, shown.say),
            target=target,
            soc=soc,
            quant=path,
            data=data,
            output=output,
            key=None if unsigned else signing_key(key),
        )
        compiled = compile_model(
            request, step=shown.step, warn=lambda text: say(f"warning: {text}")
        )
    found = drifts(old.extents, compiled.quantisation.extents)
    if as_json:
        write_json(_facts(compiled, found))
    else:
        _tell(compiled, found, refresh)


def _facts(compiled: Compiled, found: list[Drift]) -> dict[str, Json]:
    return {
        "bundle": str(compiled.output),
        "products": len(compiled.quantisation.products),
        "bits_per_weight": compiled.quantisation.bits_per_weight,
        "drifted": [{"name": d.name, "before": d.before, "now": d.now} for d in found],
    }


def _tell(compiled: Compiled, found: list[Drift], refresh: bool) -> None:
    record = compiled.quantisation
    write_line(f"quantised: {record.summary}")
    if refresh:
        write_line(f"drifted: {len(found)} of {len(record.extents)} activations")
    for drift in found[:SHOWN]:
        write_line(f"  {drift.name}: {drift.factor:.2f} times as far")
    write_line(f"bundle: {compiled.output} in {compiled.seconds:.1f} s")
