"""Values of a graph that are a cache: past keys and values, and what it returns as present."""

from __future__ import annotations

from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from mllm_compiler.dialects.mllm import PipelineOp
from mllm_compiler.passes.graphs import argument, result_names, return_of, source_name


def cached_values(graph: FuncOp, pipeline: PipelineOp) -> set[SSAValue]:
    """The values of a graph that the pipeline says are a cache; empty where it has none."""
    found: set[SSAValue] = set()
    results = dict(zip(result_names(graph), return_of(graph).operands, strict=True))
    for cache in pipeline.caches:
        if cache.graph.data not in (graph.sym_name.data, source_name(graph)):
            continue
        for layer in range(cache.layers.data):
            past = (argument(graph, name(layer)) for name in (cache.key_name, cache.value_name))
            present = (results.get(cache.out_name(layer, kind)) for kind in ("key", "value"))
            found |= {value for value in (*past, *present) if value is not None}
    return found
