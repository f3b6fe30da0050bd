"""`lower-to-cpu`: every op of a graph becomes calls of the C kernels; exact.

    %g = mllm.gated_mlp silu %x, %gate, %up, %down
->
    %a = cpu.f32_linear %x, %gate16, none {n = 1536, activation = "silu"}
    %b = cpu.f32_linear %x, %up16, none {n = 1536, activation = "none"}
    %c = cpu.f32_elementwise %a, %b {program = "in0 in1 mul"}
    %g = cpu.f32_linear %c, %down16, none {n = 576, activation = "none"}

Weights of products are read in panels of 16 rows, a reshape is an alias, chains of elementwise ops
are one program, a product that is cut between panels has several results, and past and present
tensors are the state of a cache that the graph names.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.passes import ModulePass

from mllm_compiler.dialects import cpu
from mllm_compiler.dialects.mllm import CacheAttr
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.fused_parts import PARTS, take_apart
from mllm_compiler.passes.graphs import (
    SOURCE,
    block_of,
    graphs,
    location_of,
    pipeline_of,
    remove_dead,
    return_of,
    role_of,
)
from mllm_compiler.passes.lower_to_cpu import columns, expressions
from mllm_compiler.passes.lower_to_cpu.builder import Builder
from mllm_compiler.passes.lower_to_cpu.cache import lower_cache, take_codes
from mllm_compiler.passes.lower_to_cpu.table import LOWERINGS


@dataclass(frozen=True)
class LowerToCpu(ModulePass):
    """Lowers every graph of a module from mllm to cpu."""

    name = "lower-to-cpu"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Lowers the graphs in the order of the module.

        Raises:
            CompileError: MLC-R001, an op has no kernel; MLC-R002, a cache has another use.
        """
        pipeline = pipeline_of(op)
        caches = {c.graph.data: c for c in pipeline.caches}
        for graph in graphs(op):
            cache = caches.get(graph.sym_name.data)
            lower_graph(graph, cache, pipeline.bound_of)


def lower_graph(graph: FuncOp, cache: CacheAttr | None, bounds: dict[str, int]) -> None:
    """Lowers one graph in place."""
    first = block_of(graph).first_op
    assert first is not None
    codes = {} if cache is None else take_codes(graph, cache)
    take_apart(graph, PARTS.keys() - LOWERINGS.keys())
    builder = Builder(graph, first)
    if cache is not None:
        lower_cache(builder, cache, _cache_name(graph), bounds, codes)
    for op in list(block_of(graph).ops):
        if not isinstance(op, cpu.CpuOp | ReturnOp):
            _lower_op(op, builder)
    remove_dead(graph)
    expressions.fuse(graph)
    columns.merge(graph)
    _own_results(graph, builder)
    _own_aliases(graph, builder)
    graph.update_function_type()


def _lower_op(op: Operation, builder: Builder) -> None:
    lowering = LOWERINGS.get(type(op))
    if lowering is None:
        raise CompileError(
            "MLC-R001",
            f"'{op.name}' has no home on 'c': no kernel",
            location=location_of(op),
            remedy="use the target numpy, or replace the op in the model",
        )
    builder.at = op
    made = lowering(op, builder)
    for old, new in zip(op.results, [made] if isinstance(made, SSAValue) else made, strict=True):
        old.replace_all_uses_with(new)
    op.detach()
    op.erase()


def _own_results(graph: FuncOp, builder: Builder) -> None:
    """Copies what is returned where no kernel of the graph writes it for that result alone."""
    end = return_of(graph)
    builder.at = end
    seen: set[SSAValue] = set()
    for i, value in enumerate(end.operands):
        owned = isinstance(value.owner, cpu.CpuOp) and not isinstance(value.owner, cpu.AliasOp)
        if not owned or value in seen:
            end.operands[i] = builder.call(cpu.CopyOp, [value], value.type)
        seen.add(value)


def _own_aliases(graph: FuncOp, builder: Builder) -> None:
    """Copies an argument or result that is read under another shape: its bytes are the caller's."""
    returned = set(return_of(graph).operands)
    for op in list(block_of(graph).ops):
        if not isinstance(op, cpu.AliasOp):
            continue
        if isinstance(op.x, BlockArgument) or op.x in returned:
            builder.at = op
            op.operands[0] = builder.call(cpu.CopyOp, [op.x], op.x.type)


def _cache_name(graph: FuncOp) -> str:
    """Graphs that are made from one another, and the steps of one decoder, share their cache."""
    source = graph.attributes.get(SOURCE)
    if isinstance(source, StringAttr):
        return source.data
    decoder = role_of(graph) in ("decoder", "decoder-with-past")
    return "decoder" if decoder else graph.sym_name.data
