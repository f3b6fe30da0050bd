"""`mllmc export`: a model, or a dump of one, as ONNX, so that other tools can be asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mllm_compiler.cli.console import Progress, progress, write_json, write_line

if TYPE_CHECKING:
    import onnx_ir as ir
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.dialects.func import FuncOp

    from mllm_compiler.errors import CompileError
    from mllm_compiler.importer import Imported
    from mllm_compiler.weights import WeightStore

WHERE = "mllmc export"


@click.command(name="export")
@click.argument("model")
@click.option("--opset", type=int, help="The opset, 17 or newer.  [default: 23]")
@click.option("--stop-after", metavar="PASS", help="The level: after this pass, or 'import'.")
@click.option("--weights", metavar="MODEL", help="The model of a dump, which holds its weights.")
@click.option("--graph", metavar="NAME", help="One graph of a model of several.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="The file; a folder for a model of several graphs.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def export_command(
    model: str,
    opset: int | None,
    stop_after: str | None,
    weights: str | None,
    graph: str | None,
    output: Path,
    as_json: bool,
) -> None:
    """Write a model, or a dump (.mlir) of one, as ONNX."""
    from mllm_compiler.backends.onnx.export import export_graph
    from mllm_compiler.passes.graphs import graphs

    _check_opset(opset)
    with progress("finding the model") as shown:
        module, store = _module(model, stop_after, weights, shown)
        paths = _paths(graphs(module), graph, output)
        for function, path in paths.items():
            shown.step(f"writing {path}")
            _write(export_graph(function, store, opset), path)
    written = {function.sym_name.data: path for function, path in paths.items()}
    if as_json:
        write_json({"graphs": {name: str(path) for name, path in written.items()}})
        return
    for name, path in written.items():
        write_line(f"{name}: {path} ({path.stat().st_size} bytes)")


def _module(
    model: str, stop_after: str | None, weights: str | None, shown: Progress
) -> tuple[ModuleOp, WeightStore]:
    """The module of a model at a level, or of a dump; and where its weights are."""
    from mllm_compiler.dumps import read_dump
    from mllm_compiler.weights import WeightStore

    if not model.endswith(".mlir"):
        if weights is not None:
            raise _usage("--weights is for a dump", "leave it out", "MLC-U007")
        imported = _passed(model, stop_after, shown)
        return imported.module, imported.store
    if stop_after is not None:
        text = "--stop-after is for a model; a dump has its level"
        raise _usage(text, "leave it out", "MLC-U007")
    # Passes make weights of their own: they make the same ones again.
    store = WeightStore() if weights is None else _passed(weights, None, shown).store
    return read_dump(Path(model), store), store


def _passed(model: str, stop_after: str | None, shown: Progress) -> Imported:
    """A model after the passes up to one."""
    from mllm_compiler.dialects import make_context
    from mllm_compiler.importer import import_model
    from mllm_compiler.pass_run import IMPORT, run_passes
    from mllm_compiler.pipelines import check_pass, pass_class, pass_names
    from mllm_compiler.recipes import find_model

    names = (IMPORT, *pass_names("fuse"))
    last = pass_names("lift")[-1] if stop_after is None else stop_after
    check_pass(last, names, f"{WHERE} --stop-after")
    imported = import_model(find_model(model, shown.say))
    context = make_context(imported.store)
    for name in names[1 : names.index(last) + 1]:
        shown.step(name)
        run_passes(imported.module, [pass_class(name)()], context)
    return imported


def _paths(functions: list[FuncOp], graph: str | None, output: Path) -> dict[FuncOp, Path]:
    """The file of each graph that is written."""
    names = [f.sym_name.data for f in functions]
    if graph is not None and graph not in names:
        raise _usage(f"no graph '{graph}'", f"graphs: {', '.join(names)}", "MLC-U001")
    chosen = [f for f in functions if graph in (None, f.sym_name.data)]
    if len(chosen) == 1 and not output.is_dir():
        return {chosen[0]: output}
    if output.suffix == ".onnx":
        text = f"the model has {len(chosen)} graphs and -o names one file"
        raise _usage(text, "name a folder, or one graph with --graph", "MLC-U007")
    return {f: output / f"{f.sym_name.data}.onnx" for f in chosen}


def _write(model: ir.Model, path: Path) -> None:
    """Writes a model; large weights go into `NAME.onnx.data` beside it, which appears first."""
    from mllm_compiler.backends.onnx.write import is_large, move_out, serialised
    from mllm_compiler.bundle.files import atomic_output, reading

    with reading(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    if is_large(model):
        data = path.with_name(f"{path.name}.data")
        with atomic_output(data) as out:
            for piece in move_out(model, data.name):
                out.write(piece)
    with atomic_output(path) as out:
        out.write(serialised(model))


def _check_opset(opset: int | None) -> None:
    from onnx.defs import onnx_opset_version

    from mllm_compiler.backends.onnx.export import OLDEST

    if opset is not None and not OLDEST <= opset <= onnx_opset_version():
        known = f"from {OLDEST} to {onnx_opset_version()}"
        raise _usage(f"opset {opset} cannot be written", known, "MLC-U001")


def _usage(message: str, remedy: str, code: str) -> CompileError:
    from mllm_compiler.errors import CompileError

    return CompileError(code, message, location=WHERE, remedy=remedy)
