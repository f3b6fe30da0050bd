"""`mllmc compile`: a model becomes a signed bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mllm_compiler.cli.console import progress, table, write_json, write_line
from mllm_compiler.cli.faults import say

if TYPE_CHECKING:
    from mllm_compiler.bundle.typed_json import Json
    from mllm_compiler.compiler import Compiled
    from mllm_compiler.pass_run import Observer

PATH = click.Path(path_type=Path)
DIM = "A symbolic dimension: NAME=8 fixes it, 'NAME<=8' bounds it, NAME=1,4,8 makes buckets."

TARGET = "The backend: c, neuron, numpy, qnn, rknn or tflite."
SOC = "The chip, of a target that has some.  [default: the target's first]"
KEEP_VALUES = "Also return what nodes of the model give, by a pattern of their names: '*/mlp/*'."
PLACE = "Run a graph on another device: vision=tflite; the target c calls it."
FALLBACK = "Where operations run that the device of a graph refuses.  [default: none]"
PRUNE = "Leave out work: drop-tokens{after=2 keep=196}, prune-heads{heads=4}."

max_partitions_option = click.option(
    "--max-partitions",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    metavar="N",
    help="The calls of a device in one run of a graph that there may be.",
)
partition_option = click.option(
    "--partition",
    type=click.Choice(["cost", "most"]),
    default="cost",
    show_default=True,
    help="Beside a fallback, a device gets what costs less there, or all that it runs.",
)


@click.command(name="compile")
@click.argument("model")
@click.option("--target", default="c", show_default=True, help=TARGET)
@click.option("--soc", metavar="CHIP", help=SOC)
@click.option("--place", "places", multiple=True, metavar="GRAPH=DEVICE", help=PLACE)
@click.option("--fallback", type=click.Choice(["none", "c"]), default="none", help=FALLBACK)
@max_partitions_option
@partition_option
@click.option("--dim", "dims", multiple=True, metavar="DIM", help=DIM)
@click.option("--quant", metavar="RECIPE", help="Quantise: a built-in recipe or a .toml file.")
@click.option("--prune", default="", metavar="PASSES", help=PRUNE)
@click.option("--key", type=PATH, help="Sign with this key; else with your own, made on first use.")
@click.option("--unsigned", is_flag=True, help="Do not sign.")
@click.option("-o", "--output", type=PATH, help="The bundle.  [default: NAME.mllm_bundle]")
@click.option("--dump-dir", type=PATH, help="Write the IR after each pass to DIR/NN-pass.mlir.")
@click.option("--print-ir-after-all", is_flag=True, help="Print the IR after each pass on stderr.")
@click.option("--stop-after", metavar="PASS", help="Stop after a pass and write no bundle.")
@click.option("--validate", is_flag=True, help="Run each pass's input and output and compare.")
@click.option(
    "--data", type=PATH, help="Samples: for the recipe, to prune heads by, to prove passes on."
)
@click.option("--keep-values", metavar="NODES", help=KEEP_VALUES)
@click.option("--simplify", is_flag=True, help="Run onnxsim first.")
@click.option("--report", type=PATH, help="Write a report: FILE.json or FILE.html.")
@click.option("--emit", type=click.Choice(["c"]), help="Also write readable C beside the bundle.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def compile_command(
    model: str,
    target: str,
    soc: str | None,
    places: tuple[str, ...],
    fallback: str,
    max_partitions: int,
    partition: str,
    dims: tuple[str, ...],
    quant: str | None,
    prune: str,
    key: Path | None,
    unsigned: bool,
    output: Path | None,
    dump_dir: Path | None,
    print_ir_after_all: bool,
    stop_after: str | None,
    validate: bool,
    data: Path | None,
    keep_values: str | None,
    simplify: bool,
    report: Path | None,
    emit: str | None,
    as_json: bool,
) -> None:
    """Compile a model into a signed bundle."""
    from mllm_compiler.bundle.trust import signing_key
    from mllm_compiler.compiler import Request, compile_model
    from mllm_compiler.errors import CompileError
    from mllm_compiler.importer import read_dims
    from mllm_compiler.passes.placed_graphs import read_places
    from mllm_compiler.pipelines import check_target
    from mllm_compiler.recipes import find_model
    from mllm_compiler.report import Traffic, check_report, write_report
    from mllm_compiler.report import report as facts_of

    where = "mllmc compile"
    check_target(target, where)
    placed = read_places(places)
    if fallback == target and not placed:
        text, remedy = "there is no device to fall back from", "give --place, or another --target"
        raise CompileError("MLC-U007", text, location=where, remedy=remedy)
    if emit is not None and placed:
        text = "--emit c and --place exclude each other"
        raise CompileError("MLC-U007", text, location=where, remedy="leave one of them out")
    if key is not None and unsigned:
        text = "--key and --unsigned exclude each other"
        raise CompileError("MLC-U007", text, location=where, remedy="leave one of them out")
    if emit is not None and (target != "c" or stop_after is not None):
        text = "--emit c needs --target c and no --stop-after"
        raise CompileError("MLC-U007", text, location=where, remedy="leave one of them out")
    if data is not None and quant is None and not validate and "prune-heads" not in prune:
        text = "--data needs --quant, --prune prune-heads or --validate"
        raise CompileError("MLC-U007", text, location=where, remedy="give one of them too")
    if report is not None:
        check_report(report, where)
    with progress("finding the model") as shown:
        path = find_model(model, shown.say)
        request = Request(
            model=path,
            target=target,
            soc=soc,
            places=placed,
            fallback=fallback,
            max_partitions=max_partitions,
            partition=partition,
            dims=read_dims(dims),
            prune=prune,
            output=output or Path(f"{bundle_stem(model)}.mllm_bundle"),
            quant=quant,
            key=None if unsigned or stop_after else signing_key(key),
            stop_after=stop_after,
            simplify=simplify,
            validate=validate,
            data=data,
            keep_values=keep_values,
            emit_c=emit == "c",
        )
        traffic = None if report is None else Traffic()
        observers = _observers(dump_dir, print_ir_after_all)
        observers += [] if traffic is None else [traffic]
        compiled = compile_model(request, observers=observers, step=shown.step, warn=_warn)
    facts = facts_of(compiled, traffic)
    if report is not None:
        write_report(report, facts)
    if as_json:
        write_json(facts)
    else:
        _tell(compiled, facts)


def _warn(text: str) -> None:
    say(f"warning: {text}")


def bundle_stem(model: str) -> str:
    """The default name of a model's bundle, without its suffix."""
    path = Path(model)
    if path.suffix == ".onnx":
        return path.stem
    resolved = path.resolve()
    return resolved.parent.name if path.suffix in (".toml", ".json") else resolved.name


def _observers(dump_dir: Path | None, print_ir: bool) -> list[Observer]:
    from mllm_compiler.dumps import DumpFolder, PrintAfter

    observers: list[Observer] = []
    if dump_dir is not None:
        observers.append(DumpFolder(dump_dir))
    if print_ir:
        observers.append(PrintAfter(say))
    return observers


def _tell(compiled: Compiled, facts: dict[str, Json]) -> None:
    from mllm_compiler.memory_map import peak_of
    from mllm_compiler.report import PROOF, percent, proof_row

    for record in compiled.records:
        write_line(f"{record.name:24} {record.seconds:7.2f} s  {record.op_count:6} ops")
    if compiled.proofs:
        table("proof", PROOF, [proof_row(*proof) for proof in compiled.proofs.items()])
    write_line(f"lifted: {percent(compiled.lifted_share)} of the floating-point operations")
    if compiled.quantisation.recipe:
        write_line(f"quantised: {compiled.quantisation.summary}")
    if compiled.manifest is None:
        return
    for source in compiled.sources:
        write_line(f"source: {source}")
    plan = compiled.manifest.plan
    if peak := peak_of(plan):
        figures = f"bound {plan.bound}, plan {plan.plan}, gap {plan.gap:.2%}"
        write_line(f"memory: {figures}; {peak.line}")
    write_line(
        f"bundle: {compiled.output} ({facts['bundle_bytes']} bytes) in {compiled.seconds:.1f} s"
    )
