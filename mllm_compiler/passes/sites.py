"""The products of a graph that a recipe changes, and what it calls them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from mllm_compiler.dialects.mllm import LinearOp, WeightOp
from mllm_compiler.dialects.types import bits_of, element_of
from mllm_compiler.passes.graphs import (
    block_of,
    location_of,
    result_names,
    return_of,
    role_of,
)
from mllm_compiler.passes.matching import peel
from mllm_compiler.passes.quantised_weights import WeightCodes
from mllm_compiler.quantisation.grid import Grid
from mllm_compiler.quantisation.recipe import Format, Recipe


@dataclass(frozen=True)
class Site:
    """A product to quantise.

    Attributes:
        op: The product.
        weight: Its weight.
        format: What becomes of it.
        grid: What its codes are; None where it has none.
        head: Whether it gives the logits.
        loss: How far its codes alone move the results, where that was measured.
    """

    op: LinearOp
    weight: WeightOp
    format: Format
    grid: Grid | None
    head: bool = False
    loss: float | None = None

    def of_format(self, form: Format) -> Site:
        """The same product in another format."""
        return replace(self, format=form, grid=form.grid(self.weight.value.dims[1]))


def sites_of(graph: FuncOp, recipe: Recipe, weights: WeightCodes) -> list[Site]:
    """The products of a graph that a recipe changes, in order."""
    head = head_of(graph)
    sites: list[Site] = []
    for op in block_of(graph).ops:
        weight = weights.known(op.weight) if isinstance(op, LinearOp) else None
        if not isinstance(op, LinearOp) or weight is None:
            continue
        form = recipe.format_of(names_of(graph, op, weight), role_of(graph), head=op is head)
        if form.bits < bits_of(element_of(op.weight)):
            sites.append(Site(op, weight, form, form.grid(weight.value.dims[1]), op is head))
    return sites


def head_of(graph: FuncOp) -> Operation | None:
    """What makes the `logits` of a graph."""
    outputs = dict(zip(result_names(graph), return_of(graph).operands, strict=True))
    logits = outputs.get("logits")
    owner = None if logits is None else peel(logits).owner
    return owner if isinstance(owner, Operation) else None


def names_of(graph: FuncOp, op: Operation, weight: WeightOp) -> list[str]:
    """What a recipe may call a product: `graph:weight` and `graph:node`."""
    name = "" if weight.weight_name is None else weight.weight_name.data
    return [f"{graph.sym_name.data}:{part}" for part in (name, location_of(op)) if part]
