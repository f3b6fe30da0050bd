"""`smooth-activations`: the inputs of products are scaled, channel by channel; exact but rounding.

    %n = mllm.rms_norm %x, %g
    %y = mllm.linear %n, %w

becomes, for factors s of the channels of %n,

    %n = mllm.rms_norm %x, %g / s
    %y = mllm.linear %n, %w * s

so that no channel spoils the scale of the others. `smoothquant` makes activations easier and
weights harder, by the largest magnitudes of both on samples; `awq` gives the channels finer codes
that matter most. Factors go into the norm, or into the rows of the product `up` of a gated
feed-forward block, whose `down` reads them. A weight that something else reads, here or in another
graph, stays.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from mllm_compiler.dialects import store_of
from mllm_compiler.dialects.mllm import (
    BinaryKind,
    BinaryOp,
    BlobAttr,
    LayerNormOp,
    LinearOp,
    RmsNormOp,
    WeightOp,
)
from mllm_compiler.dialects.types import shape_of
from mllm_compiler.passes.calibration_data import needed_inputs
from mllm_compiler.passes.folded_weights import numbers_of, put_numbers
from mllm_compiler.passes.graphs import block_of, entry_order, graphs, remove_dead, users
from mllm_compiler.passes.lift_gated_mlp import LiftGatedMlp
from mllm_compiler.passes.lift_mlp import LiftMlp
from mllm_compiler.passes.mlp_parts import take_mlps_apart
from mllm_compiler.passes.quantised_weights import WeightCodes
from mllm_compiler.passes.samples import Samples
from mllm_compiler.quantisation.awq import awq_scales
from mllm_compiler.quantisation.grid import Floats, Grid
from mllm_compiler.quantisation.recipe import AWQ, Recipe, read_recipe
from mllm_compiler.quantisation.smooth import smoothing


@dataclass(frozen=True)
class Place:
    """Activations whose channels can be scaled.

    Attributes:
        x: The activations.
        sides: What is divided by the factors: weight and bias of a norm, or those of a product.
        maker: The op that has them.
        readers: The products whose weights are multiplied.
    """

    x: SSAValue
    sides: tuple[int, ...]
    maker: Operation
    readers: tuple[LinearOp, ...]


@dataclass(frozen=True)
class SmoothActivations(ModulePass):
    """Scales the inputs of products by a recipe.

    Attributes:
        recipe: A built-in recipe or a `.toml` file; without `smooth` in it, nothing happens.
        data: A folder of calibration inputs, `GRAPH/NAME.npz`.
    """

    name = "smooth-activations"
    recipe: str = "w8a8"
    data: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Scales all that can be, graph by graph.

        Raises:
            CompileError: The recipe cannot be used, or needs data that is not there.
        """
        recipe = read_recipe(self.recipe)
        if recipe.smooth is None:
            return
        weights = WeightCodes(store_of(ctx))
        shared = _shared(op)
        for graph in entry_order(op):
            take_mlps_apart(graph)
            _Graph(graph, weights, shared).smooth(recipe, self.data)
        LiftGatedMlp().apply(ctx, op)
        LiftMlp().apply(ctx, op)


def _shared(module: ModuleOp) -> set[BlobAttr]:
    """The weights that several graphs, or several ops of one, hold."""
    found = Counter(
        blob
        for graph in graphs(module)
        for op in block_of(graph).ops
        if isinstance(op, WeightOp)
        for blob in (op.value,)
    )
    return {blob for blob, count in found.items() if count > 1}


class _Graph:
    """A graph whose activations are scaled."""

    def __init__(self, graph: FuncOp, weights: WeightCodes, shared: set[BlobAttr]) -> None:
        self.graph, self.weights, self.shared = graph, weights, shared

    def smooth(self, recipe: Recipe, data: str) -> None:
        """Finds the factors on samples, then folds all of them."""
        places = [place for op in block_of(self.graph).ops if (place := self._place(op))]
        if not places:
            return
        inputs = needed_inputs(data, self.graph.sym_name.data)
        first = {place.readers[0]: place for place in places}
        asking = [reader for place in places for reader in place.readers]
        samples = Samples.of(self.graph, inputs, self.weights.store, asking)
        factors: dict[SSAValue, Floats] = {}
        for op in block_of(self.graph).ops:
            if isinstance(op, LinearOp) and op in first:
                factors[op.x] = self._factors(first[op], recipe, samples)
            if isinstance(op, LinearOp) and not samples.asks_for(op.result):
                samples.finish(op, op.operands)
            else:
                samples.step(op)
        for place in places:
            self._fold(place, factors[place.x])
        remove_dead(self.graph)

    def _place(self, op: Operation) -> Place | None:
        """The activations that an op makes, where products alone read them."""
        sides = _sides(op)
        known = [numbers_of(op.operands[at], self.weights.store) is not None for at in sides]
        if not known or not all(known):
            return None
        value = op.results[0]
        if isinstance(op, LinearOp):
            product = next(iter(users(value))) if value.has_one_use() else None
            if not isinstance(product, BinaryOp) or product.kind.data is not BinaryKind.MUL:
                return None
            if shape_of(product.result) != shape_of(value) or self._is_held(op.weight):
                return None
            value = product.result
        readers = [user for user in users(value) if isinstance(user, LinearOp)]
        alone = len(readers) == len(list(users(value))) and all(r.x is value for r in readers)
        if not readers or not alone or any(self._is_held(r.weight) for r in readers):
            return None
        return Place(value, sides, op, tuple(readers))

    def _is_held(self, value: SSAValue) -> bool:
        """Whether a matrix is no weight, or something else reads it too."""
        weight = self.weights.known(value)
        return weight is None or weight.value in self.shared or not value.has_one_use()

    def _factors(self, place: Place, recipe: Recipe, samples: Samples) -> Floats:
        """What the columns of the readers' weights are multiplied by."""
        matrices = [self._matrix(reader) for reader in place.readers]
        arrays = [np.abs(a.reshape(-1, a.shape[-1])) for a in samples.of_value(place.x)]
        if recipe.smooth != AWQ:
            peaks = np.max([a.max(0) for a in arrays], 0).astype(np.float32)
            return smoothing(peaks, matrices, recipe.strength)
        sizes = sum(len(a) for a in arrays)
        means = np.sum([a.sum(0, dtype=np.float64) for a in arrays], 0) / max(1, sizes)
        grid = recipe.linears.grid(matrices[0].shape[1]) or Grid(bits=8)
        return awq_scales(matrices, means.astype(np.float32), samples.gram(place.x), grid)

    def _matrix(self, reader: LinearOp) -> Floats:
        weight = self.weights.known(reader.weight)
        assert weight is not None
        return self.weights.matrix(weight)

    def _fold(self, place: Place, factors: Floats) -> None:
        store = self.weights.store
        for at in place.sides:
            array = numbers_of(place.maker.operands[at], store)
            assert array is not None
            shape = (-1, *[1] * (array.ndim - 1))
            put_numbers(place.maker, at, array / factors.reshape(shape), store)
        for reader in place.readers:
            put_numbers(reader, 1, self._matrix(reader) * factors, store)


def _sides(op: Operation) -> tuple[int, ...]:
    """The operands of an op that scale its result: weight and bias, by channel."""
    if isinstance(op, RmsNormOp):
        return (1,)
    if isinstance(op, LayerNormOp):
        return tuple(range(1, len(op.operands))) if op.weight is not None else ()
    return tuple(range(1, len(op.operands))) if isinstance(op, LinearOp) else ()
