"""Inputs of the user for the graphs of a module: a folder of `.npz` files.

`FOLDER/decoder/*.npz` are for the graph `decoder`; a file in the folder itself is for each graph
whose inputs it holds. A file is one sample: an array for each input, by its name.
"""

from __future__ import annotations

from pathlib import Path

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from mllm_compiler.bundle.tensor_files import read_tensors
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.graphs import argument_names, graphs
from mllm_compiler.reference.executor import bind_symbols
from mllm_compiler.validate.cases import Case


def samples_of(folder: Path, module: ModuleOp) -> dict[str, list[Case]]:
    """The samples of each graph that has any, in the order of the files' names.

    Raises:
        CompileError: `MLC-U016`, there is no sample of any graph; `MLC-U010`, a file is no `.npz`;
            `MLC-D001`, an array does not fit its input.
    """
    everywhere = sorted(folder.glob("*.npz"))
    found: dict[str, list[Case]] = {}
    for graph in graphs(module):
        own = sorted((folder / graph.sym_name.data).glob("*.npz"))
        cases = [case for path in own or everywhere if (case := _case(path, graph, bool(own)))]
        found |= {graph.sym_name.data: cases} if cases else {}
    if not found:
        names = ", ".join(graph.sym_name.data for graph in graphs(module))
        message = f"no sample for any of the graphs ({names})"
        remedy = "put .npz files into it, an array for each input of a graph"
        raise CompileError("MLC-U016", message, location=str(folder), remedy=remedy)
    return found


def _case(path: Path, graph: FuncOp, own: bool) -> Case | None:
    """The sample of a file; none where it is for another graph."""
    arrays, names = read_tensors(path), argument_names(graph)
    if not own and not set(names) <= arrays.keys():
        return None
    missing = [name for name in names if name not in arrays]
    try:
        if missing:
            raise CompileError("MLC-D001", f"these inputs are missing: {', '.join(missing)}")
        bind_symbols(graph, [arrays[name] for name in names])
    except CompileError as fault:
        where = f"{path}: {fault.location}" if fault.location else str(path)
        remedy = f"give every input of '{graph.sym_name.data}' with its dtype and shape"
        raise CompileError(fault.code, fault.message, location=where, remedy=remedy) from None
    return Case(path.name, {name: arrays[name] for name in names})
