"""What a graph must give that a pass made of others: entries of a language model, padded graphs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp

from mllm_compiler.backends.numpy.runner import NumpyRunner
from mllm_compiler.dialects.dims import dims_of
from mllm_compiler.dialects.types import dtype_of, tensor_type
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.graphs import SOURCE, argument_names, graphs
from mllm_compiler.validate.cases import Case, seeded_value
from mllm_compiler.validate.run import run_graph
from mllm_compiler.validate.sizes import summed
from mllm_compiler.weights import WeightStore

Values = Mapping[str, NDArray[np.generic]]


def source_of(module: ModuleOp, graph: FuncOp) -> FuncOp | None:
    """The graph that a graph of the module was derived from."""
    source = graph.attributes.get(SOURCE)
    name = source.data if isinstance(source, StringAttr) else None
    return next((g for g in graphs(module) if g.sym_name.data == name and g is not graph), None)


def expected_of_entry(
    module: ModuleOp, source: FuncOp, inputs: Values, given: Values, store: WeightStore
) -> Values:
    """What an entry of a language model must give: what the model gives where every token counts.

    Args:
        module: Holds the model.
        source: The model.
        inputs: What the entry takes; a mask of ones and the positions are added.
        given: What the entry gave; of the logits it may give the last row.
        store: The bytes of weights.
    """
    arguments = dict(zip(argument_names(source), source.args, strict=True))
    pairs = [(tensor_type(arguments[n]), inputs[n]) for n in arguments.keys() & inputs.keys()]
    sizes = {
        symbol: extent
        for kind, array in pairs
        for dim, extent in zip(dims_of(kind), array.shape, strict=True)
        if (symbol := dim.as_symbol())
    }
    completed = dict(inputs)
    symbols = {s for v in arguments.values() for d in dims_of(tensor_type(v)) for s in d.symbols()}
    sizes = summed({symbol: sizes.get(symbol, 0) for symbol in symbols})
    for name in arguments.keys() - inputs.keys():
        kind = tensor_type(arguments[name])
        shape = tuple(dim.evaluate(sizes) for dim in dims_of(kind))
        completed[name] = seeded_value(name, dtype_of(kind.element_type), shape, sizes)
    results = run_graph(module, source, completed, store)
    return {name: _last_row(results[name], value) for name, value in given.items()}


def _last_row(expected: NDArray[np.generic], value: NDArray[np.generic]) -> NDArray[np.generic]:
    if value.ndim == 3 and value.shape[1] == 1:
        return expected[:, -1:]
    return expected


def padded_results(
    module: ModuleOp, entry: str, cases: Iterable[Case], store: WeightStore
) -> Iterator[tuple[Case, Values]]:
    """What padded graphs give in the place of an entry, for the cases that fit into one."""
    runner = NumpyRunner(module, store)
    for case in cases:
        try:
            yield case, runner.run(entry, case.inputs)
        except CompileError:
            continue
