"""`mllmc reduce`: the smallest model that still fails, to attach to a report."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mllm_compiler.cli.console import progress, write_json, write_line

if TYPE_CHECKING:
    from mllm_compiler.reduce import Limits, Reduction
    from mllm_compiler.reduce.expect import Test

CODE = re.compile(r"MLC-[A-Z]\d+")
WHERE = "mllmc reduce"


@click.command(name="reduce")
@click.argument("model")
@click.option(
    "--expect",
    required=True,
    metavar="CODE|COMMAND",
    help="An error code that compiling must end with; or a shell command that must fail, where {} "
    "(else its last argument) is the file.",
)
@click.option("--target", default="c", show_default=True, help="Compile for it, with a code.")
@click.option("--graph", metavar="NAME", help="The graph of a model of several.  [default: any]")
@click.option("--match", metavar="REGEX", help="What the error or the command prints must match.")
@click.option("--timeout", default=120.0, show_default=True, help="Seconds that a try may take.")
@click.option("--memory", default=8192, show_default=True, help="MiB that a try may take.")
@click.option("--max-tries", default=2000, show_default=True, help="Stop after so many tries.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("reduced.onnx"),
    show_default=True,
    help="The file to write.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def reduce_command(
    model: str,
    expect: str,
    target: str,
    graph: str | None,
    match: str | None,
    timeout: float,
    memory: int,
    max_tries: int,
    output: Path,
    as_json: bool,
) -> None:
    """Find the smallest model that still fails."""
    from mllm_compiler.pipelines import check_target
    from mllm_compiler.recipes import find_model
    from mllm_compiler.reduce import Limits, reduce_model

    check_target(target, WHERE)
    test = _test(expect, target, match, Limits(timeout, memory))
    with progress("finding the model") as shown:
        files = _files(find_model(model, shown.say), graph)
        try:
            source = next((f for f in files[:-1] if test.outcome(f).failed), files[-1])
            reduction = reduce_model(source, output, test, limit=max_tries, step=shown.step)
        finally:
            test.close()
    if as_json:
        write_json(_facts(reduction))
    else:
        _tell(reduction)


def _test(expect: str, target: str, match: str | None, limits: Limits) -> Test:
    from mllm_compiler.errors import OWN_FAULT, CompileError, error_codes
    from mllm_compiler.reduce import CodeTest, CommandTest

    try:
        pattern = None if match is None else re.compile(match)
    except re.error as fault:
        raise CompileError(
            "MLC-U001", f"not a regular expression: {fault}", location=f"{WHERE} --match"
        ) from None
    if not CODE.fullmatch(expect):
        return CommandTest(expect, pattern, limits)
    if expect not in {*error_codes(), OWN_FAULT}:
        raise CompileError(
            "MLC-U001",
            f"no error has the code {expect}",
            location=f"{WHERE} --expect",
            remedy="docs/errors.md lists the codes",
        )
    return CodeTest(expect, target, pattern, limits)


def _files(path: Path, graph: str | None) -> list[Path]:
    """The `.onnx` files that may be at fault: one graph's, or all."""
    from mllm_compiler.errors import CompileError
    from mllm_compiler.importer import read_model_spec

    if path.suffix == ".onnx":
        return [path]
    spec = read_model_spec(path)
    if graph is not None and graph not in spec.graphs:
        raise CompileError(
            "MLC-U001",
            f"the model has no graph '{graph}'",
            location=f"{WHERE} --graph",
            remedy=f"graphs: {', '.join(spec.graphs)}",
        )
    names = [graph] if graph is not None else list(spec.graphs)
    return [spec.folder / spec.graphs[name].file for name in names]


def _facts(reduction: Reduction) -> dict[str, object]:
    return {
        "source": str(reduction.source),
        "output": str(reduction.output),
        "nodes_before": reduction.before,
        "nodes_after": reduction.after,
        "tries": reduction.tries,
        "bytes": reduction.nbytes,
        "failure": reduction.said,
    }


def _tell(reduction: Reduction) -> None:
    write_line(f"{reduction.source}: {reduction.before} nodes")
    write_line(f"{reduction.output}: {reduction.after} nodes, {reduction.nbytes} bytes")
    write_line(f"{reduction.tries} tries; it still fails: {reduction.said}")
