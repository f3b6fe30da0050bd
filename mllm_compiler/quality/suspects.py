"""Which quantised layers to suspect: those that add the most error to what they read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from mllm_compiler.dialects.locations import location_name
from mllm_compiler.dialects.mllm import DequantizeOp, QuantizedLinearOp, SliceOp, WeightOp
from mllm_compiler.passes.graphs import block_of
from mllm_compiler.passes.matching import made_by
from mllm_compiler.quality.layers import NodeError


def suspects(graph: FuncOp, errors: Iterable[NodeError]) -> dict[str, float]:
    """The error that each quantised product adds, by what a recipe calls it, the largest first.

    Errors of independent roundings add up as squares do, so what a node adds is the square of the
    error of its value less the largest square of what it reads.

    Args:
        graph: The quantised graph.
        errors: Of its nodes.
    """
    name = graph.sym_name.data
    squares = {error.name.removeprefix(f"{name}/"): error.error**2 for error in errors}
    added: dict[str, float] = {}
    for node, (parts, sources) in _quantised(graph).items():
        read = max((squares.get(source, 0.0) for source in sources), default=0.0)
        for part in parts:
            added[f"{name}:{part}"] = max(0.0, squares.get(node, 0.0) - read)
    return dict(sorted(added.items(), key=lambda item: -item[1]))


def _quantised(graph: FuncOp) -> Mapping[str, tuple[list[str], set[str]]]:
    """The nodes with products of codes: what a recipe calls them, and the nodes that each reads."""
    ops = [op for op in block_of(graph).ops if location_name(op)]
    names = {location_name(op): parts for op in ops if (parts := _names(op))}
    nodes = {node: (parts, set[str]()) for node, parts in names.items()}
    for op in ops:
        if (node := location_name(op)) in nodes:
            reader = _joined_product(op) or op
            owners = (v.owner for v in reader.operands if isinstance(v.owner, Operation))
            nodes[node][1].update(location_name(owner) for owner in owners if owner.operands)
    for node, (_, sources) in nodes.items():
        sources.discard(node)
    return nodes


def _names(op: Operation) -> list[str]:
    """What a recipe calls the products that an op is: their node, or, of a joined weight, parts."""
    if isinstance(op, DequantizeOp):
        weight = made_by(op.x, WeightOp)
        joined = "" if weight is None or weight.weight_name is None else weight.weight_name.data
        return joined.split("+") if "+" in joined else [location_name(op)]
    product = isinstance(op, QuantizedLinearOp) or _joined_product(op) is not None
    return [location_name(op)] if product else []


def _joined_product(op: Operation) -> QuantizedLinearOp | None:
    """The product of several weights that an op takes the columns of one from."""
    return made_by(op.x, QuantizedLinearOp) if isinstance(op, SliceOp) else None
