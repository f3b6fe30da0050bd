"""What a quantised module says of its products: bits, and how far activations reach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import cast

from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, ModuleOp
from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects.mllm import (
    ConstantOp,
    DequantizeOp,
    DynamicQuantizeOp,
    QuantizedLinearOp,
    QuantizeOp,
    WeightOp,
    array_of,
)
from mllm_compiler.dialects.mllm.contract import float_list
from mllm_compiler.dialects.mllm.quant import value_of
from mllm_compiler.dialects.types import bits_of, element_of
from mllm_compiler.passes.graphs import block_of, graphs, location_of
from mllm_compiler.passes.matching import made_by
from mllm_compiler.passes.quantised_rows import REACH
from mllm_compiler.passes.quantised_weights import LOSS
from mllm_compiler.quantisation.recipe import DYNAMIC, FLOAT, STATIC


@dataclass(frozen=True, kw_only=True)
class QuantisedProduct:
    """A product with a weight of codes.

    Attributes:
        name: `graph:node`.
        weight: The weight's name.
        weights: How many weights it has.
        bits: Of a code.
        stored_bits: Of codes, scales and zero points together.
        block_size: Inputs that share a scale.
        activations: `float`, `dynamic` or `static`.
        scale: The static scale of the activations.
        reach: Of activations that samples were seen of: the largest magnitude, and the one that 1
            in 1,000 exceeds.
        loss: How far its codes of few bits alone moved the results, where bits are mixed.
    """

    name: str
    weight: str
    weights: int
    bits: int
    stored_bits: int
    block_size: int | None
    activations: str
    scale: float | None
    reach: tuple[float, ...] = ()
    loss: float | None = None

    @property
    def label(self) -> str:
        """`graph:weight`, or `graph:node` where the weight has no name."""
        graph = self.name.partition(":")[0]
        return f"{graph}:{self.weight}" if self.weight else self.name

    @property
    def extent(self) -> float | None:
        """How far the activations reach: their static scale, else what they usually do."""
        return self.reach[1] if self.scale is None and self.reach else self.scale


def quantised_products(module: ModuleOp) -> list[QuantisedProduct]:
    """The quantised products of all graphs, in order."""
    return [
        made
        for graph in graphs(module)
        for op in block_of(graph).ops
        for made in _products(graph.sym_name.data, op)
    ]


def bits_per_weight(products: Sequence[QuantisedProduct]) -> float:
    """The bits that a weight takes on average, scales and zero points counted."""
    return sum(p.stored_bits for p in products) / max(1, sum(p.weights for p in products))


def _products(graph: str, op: Operation) -> Iterator[QuantisedProduct]:
    if isinstance(op, QuantizedLinearOp):
        sides = (op.weight, op.weight_scale, op.weight_zero)
        size, x = value_of(op.block_size), op.x
    elif isinstance(op, DequantizeOp):
        sides, size, x = (op.x, op.scale, op.zero_point), value_of(op.block_size), None
    else:
        return
    parts = [made_by(v, WeightOp) for v in sides if v is not None]
    known = [part for part in parts if part is not None]
    if not known or known[0] is not parts[0]:
        return
    name = known[0].weight_name
    activations, scale = _activations(x)
    yield QuantisedProduct(
        name=f"{graph}:{location_of(op)}",
        weight="" if name is None else name.data,
        weights=prod(known[0].value.dims),
        bits=bits_of(element_of(known[0].result)),
        stored_bits=sum(prod(p.value.dims) * bits_of(element_of(p.result)) for p in known),
        block_size=size,
        activations=activations,
        scale=scale,
        reach=_reach(x),
        loss=_loss(known[0]),
    )


def _loss(codes: WeightOp) -> float | None:
    found = codes.attributes.get(LOSS)
    return None if found is None else cast(FloatAttr, found).value.data


def _reach(x: SSAValue | None) -> tuple[float, ...]:
    """What samples said of the activations."""
    maker = None if x is None else x.owner
    found = maker.attributes.get(REACH) if isinstance(maker, Operation) else None
    return () if found is None else float_list(cast(DenseArrayBase, found))


def _activations(x: SSAValue | None) -> tuple[str, float | None]:
    """How the activations are quantised, and by which scale."""
    maker = None if x is None else x.owner
    if isinstance(maker, DynamicQuantizeOp):
        return DYNAMIC, None
    if not isinstance(maker, QuantizeOp):
        return FLOAT, None
    constant = made_by(maker.scale, ConstantOp)
    return STATIC, None if constant is None else float(array_of(constant.value))
