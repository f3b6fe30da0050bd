"""What graphs give one another, where a pass moves work between them.

Such a graph takes other inputs than before. What can be compared is the pipeline: the graphs that
it reads run on the same inputs before the pass and after it, and give it what it takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from mllm_compiler.dialects.types import shape_of
from mllm_compiler.passes.graphs import argument_names, graphs, pipeline_of, result_names, return_of
from mllm_compiler.reference.executor import bind_symbols
from mllm_compiler.validate.cases import FLOATS, Case, inputs_at, with_floats
from mllm_compiler.validate.run import run_graph
from mllm_compiler.validate.sizes import sizes_of
from mllm_compiler.weights import WeightStore

Shape = tuple[int, ...]


def makers_of(
    module: ModuleOp, graph: FuncOp, case: Case, known: Mapping[str, Sequence[Case]]
) -> dict[str, Case]:
    """A case for each graph that a graph reads, in which it gives what has the shapes of a case.

    Args:
        module: Holds the graphs.
        graph: The graph that reads.
        case: Its case.
        known: The cases of each graph; that of the same name is taken where it fits.
    """
    name, shapes = graph.sym_name.data, dict[str, dict[str, Shape]]()
    for edge in pipeline_of(module).edges:
        if edge.consumer.data == name and edge.input.data in case.inputs:
            of_maker = shapes.setdefault(edge.producer.data, {})
            of_maker[edge.output.data] = case.inputs[edge.input.data].shape
    found: dict[str, Case] = {}
    for maker in graphs(module):
        own = maker.sym_name.data
        if own in shapes:
            same = [c for c in known.get(own, ()) if c.name == case.name]
            fitting = [c for c in same if _gives(maker, c, shapes[own])]
            found[own] = fitting[0] if fitting else _sized(module, maker, case.name, shapes[own])
    return found


def along_edges(
    module: ModuleOp, graph: FuncOp, case: Case, makers: Mapping[str, Case], store: WeightStore
) -> Case:
    """A case of a graph in which the graphs that it reads have run; other inputs are as they were.

    Args:
        module: Holds the graphs.
        graph: The graph that reads.
        case: Its case.
        makers: The case of each graph that runs before it.
        store: The bytes of weights.
    """
    by_name = {g.sym_name.data: g for g in graphs(module)}
    edges = [e for e in pipeline_of(module).edges if e.consumer == graph.sym_name]
    read = {e.producer.data for e in edges} & makers.keys()
    made = {n: run_graph(module, by_name[n], makers[n].inputs, store) for n in sorted(read)}
    given = {
        e.input.data: made[e.producer.data][e.output.data] for e in edges if e.producer.data in read
    }
    return replace(case, inputs={**case.inputs, **given})


def _gives(maker: FuncOp, case: Case, shapes: Mapping[str, Shape]) -> bool:
    """Whether results have these shapes in a case."""
    env = bind_symbols(maker, [case.inputs[name] for name in argument_names(maker)])
    made = dict(zip(result_names(maker), return_of(maker).operands, strict=True))
    pairs = [zip(shape_of(made[n]), shape, strict=True) for n, shape in shapes.items()]
    return all(d.unknown or d.evaluate(env) == extent for each in pairs for d, extent in each)


def _sized(module: ModuleOp, maker: FuncOp, name: str, shapes: Mapping[str, Shape]) -> Case:
    """Seeded inputs of a case with which results have these shapes."""
    sizes = next(iter(sizes_of(maker, pipeline_of(module)).values()))
    made = dict(zip(result_names(maker), return_of(maker).operands, strict=True))
    for output, shape in shapes.items():
        pairs = zip(shape_of(made[output]), shape, strict=True)
        sizes = sizes | {s: extent for dim, extent in pairs if (s := dim.as_symbol())}
    inputs = inputs_at(maker, sizes)
    return Case(name, with_floats(inputs, FLOATS[name]) if name in FLOATS else inputs)
