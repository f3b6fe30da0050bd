"""Which quantised layers to suspect: those that add the most error to what they read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from mllm_compiler.dialects.locations import location_name
from mllm_compiler.dialects.mllm import DequantizeOp, QuantizedLinearOp
from mllm_compiler.passes.graphs import block_of
from mllm_compiler.quality.layers import NodeError


def suspects(graph: FuncOp, errors: Iterable[NodeError]) -> dict[str, float]:
    """The error that each quantised node of a graph adds, by `graph:node`, the largest first.

    Errors of independent roundings add up as squares do, so what a node adds is the square of the
    error of its value less the largest square of what it reads.

    Args:
        graph: The quantised graph.
        errors: Of its nodes.
    """
    name = graph.sym_name.data
    squares = {error.name.removeprefix(f"{name}/"): error.error**2 for error in errors}
    added: dict[str, float] = {}
    for node, sources in _quantised(graph).items():
        read = max((squares.get(source, 0.0) for source in sources), default=0.0)
        added[f"{name}:{node}"] = max(0.0, squares.get(node, 0.0) - read)
    return dict(sorted(added.items(), key=lambda item: -item[1]))


def _quantised(graph: FuncOp) -> Mapping[str, set[str]]:
    """The nodes with products of codes, and the nodes that each reads."""
    ops = [op for op in block_of(graph).ops if location_name(op)]
    kinds = (QuantizedLinearOp, DequantizeOp)
    nodes = {location_name(op): set[str]() for op in ops if isinstance(op, kinds)}
    for op in ops:
        if (node := location_name(op)) in nodes:
            owners = (v.owner for v in op.operands if isinstance(v.owner, Operation))
            nodes[node] |= {location_name(owner) for owner in owners if owner.operands} - {node}
    return nodes
