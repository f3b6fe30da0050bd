"""`quantise-linears`: products with a weight take the formats of a recipe; not exact.

    %y = mllm.linear %x, %w : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>

becomes, where the recipe keeps activations real,

    %c = mllm.weight #mllm.blob<.., i4, [4, 8]>
    %s = mllm.weight #mllm.blob<.., f16, [4, 2]>
    %v = mllm.dequantize %c, %s {axis = 1, block_size = 4} : .. -> tensor<4x8xf32>
    %y = mllm.linear %x, %v

and, where it quantises them,

    %q, %t = mllm.dynamic_quantize %x {axis = 1, block_size = 4} : .. -> (tensor<?x8xi8>, ..)
    %y = mllm.quantized_linear %q, %t, %c, %s {block_size = 4}

Feed-forward blocks are taken apart first, and put together again where their products stay
products. Products that share a weight share its codes. A recipe that asks for it is given
calibration inputs, which go through the graph as it is quantised: a product is chosen by what the
quantised ones before it give.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import FloatAttr, ModuleOp, f64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from mllm_compiler.dialects import store_of
from mllm_compiler.dialects.mllm import (
    BlobAttr,
    CastOp,
    DequantizeOp,
    LinearOp,
    QuantizedLinearOp,
    WeightOp,
)
from mllm_compiler.dialects.types import element_of
from mllm_compiler.passes.calibration_data import graph_inputs, needed_inputs
from mllm_compiler.passes.corrected_biases import corrected_bias
from mllm_compiler.passes.graphs import block_of, entry_order, remove_dead
from mllm_compiler.passes.lift_gated_mlp import LiftGatedMlp
from mllm_compiler.passes.lift_mlp import LiftMlp
from mllm_compiler.passes.mixed_precision import with_more_bits
from mllm_compiler.passes.mlp_parts import put_in_place, take_mlps_apart
from mllm_compiler.passes.quantised_rows import QuantisedRows
from mllm_compiler.passes.quantised_weights import LOSS, Choose, CodedWeight, WeightCodes
from mllm_compiler.passes.samples import Samples
from mllm_compiler.passes.sites import Site, sites_of
from mllm_compiler.quantisation.gptq import gptq
from mllm_compiler.quantisation.grid import Floats, mse_clipped, round_to_nearest
from mllm_compiler.quantisation.recipe import FLOAT, GPTQ, Recipe, read_recipe
from mllm_compiler.reference import Array, Frame
from mllm_compiler.reference.mllm_linear import linear

CHOOSE = {"nearest": round_to_nearest, "clipped": mse_clipped}
"""What chooses codes by the weight alone."""


@dataclass(frozen=True)
class QuantiseLinears(ModulePass):
    """Quantises products with weights.

    Attributes:
        recipe: A built-in recipe or a `.toml` file.
        data: A folder of calibration inputs, `GRAPH/NAME.npz`; empty where the recipe needs none.
    """

    name = "quantise-linears"
    recipe: str = "w8a8"
    data: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Quantises each graph, those first whose results others read.

        Raises:
            CompileError: The recipe cannot be used, or needs data that is not there.
        """
        recipe = read_recipe(self.recipe)
        weights = WeightCodes(store_of(ctx))
        for graph in entry_order(op):
            take_mlps_apart(graph)
            _Graph(graph, weights, self.data).quantise(recipe)
        LiftGatedMlp().apply(ctx, op)
        LiftMlp().apply(ctx, op)


class _Graph:
    """A graph on its way to codes."""

    def __init__(self, graph: FuncOp, weights: WeightCodes, data: str) -> None:
        self.graph, self.weights, self.data = graph, weights, data
        self.name = graph.sym_name.data

    def quantise(self, recipe: Recipe) -> None:
        """Replaces the products in order; samples run beside."""
        sites = sites_of(self.graph, recipe, self.weights)
        if recipe.mixed is not None and any(site.grid is not None for site in sites):
            inputs, mixed = needed_inputs(self.data, self.name), recipe.mixed
            sites = with_more_bits(self.graph, sites, recipe.linears, mixed, inputs, self.weights)
        by_op: dict[Operation, Site] = {site.op: site for site in sites}
        self.samples = self._samples(sites)
        self.rows = QuantisedRows(self.samples)
        for op in list(block_of(self.graph).ops):
            if op in by_op:
                self._replace(by_op[op])
            else:
                self.samples.step(op)
        remove_dead(self.graph)

    def _samples(self, sites: Sequence[Site]) -> Samples:
        """Samples for what is chosen by them, and for what only says how far it reaches."""
        needed = any(site.format.needs_data for site in sites)
        inputs = (needed_inputs if needed else graph_inputs)(self.data, self.name)
        coded = [s.op for s in sites if s.format.needs_data or s.format.activations != FLOAT]
        return Samples.of(self.graph, inputs, self.weights.store, coded)

    def _replace(self, site: Site) -> None:
        op, x = site.op, site.op.x
        if site.grid is None:
            half = self.weights.halved(site.weight)
            numbers = CastOp(half.result, element_of(op.weight))
            made = [half, numbers, LinearOp(x, numbers.result, op.bias)]
            self._put(op, made, lambda: self.weights.matrix(half))
            return
        grid, size = site.grid, site.grid.block_size
        coded = self.weights.coded(site.weight, grid, self._chooser(site))
        if site.loss is not None:
            coded.codes.attributes[LOSS] = FloatAttr(site.loss, f64)
        codes, scale, zero = coded.values
        if site.format.activations == FLOAT:
            element, axis = element_of(op.weight), None if size is None else 1
            numbers = DequantizeOp(codes, scale, zero, axis=axis, block_size=size, element=element)
            new, bias = self._bias(site, coded, None)
            made = [*coded.ops, numbers, *new, LinearOp(x, numbers.result, bias)]
            self._put(op, made, lambda: self.weights.array_of(coded, grid))
            return
        rows = self.rows.of(x, site.format, size)
        new, bias = self._bias(site, coded, rows.seen)
        product = QuantizedLinearOp(
            rows.codes, rows.scale, codes, scale, weight_zero=zero, bias=bias, block_size=size
        )
        made = [*coded.ops, *rows.ops, *new, product]
        self._put(op, made, lambda: self.weights.array_of(coded, grid), rows.seen)

    def _bias(
        self, site: Site, coded: CodedWeight, seen: Callable[[Frame], Array] | None
    ) -> tuple[list[Operation], SSAValue | None]:
        """The bias of a product, and what makes it and stands in no block yet."""
        op = site.op
        if site.grid is None or not site.format.correct_bias:
            return [], op.bias
        matrices = self.weights.matrix(site.weight), self.weights.array_of(coded, site.grid)
        array = corrected_bias(op, matrices, seen, self.samples, self.weights.store)
        if array is None:
            return [], op.bias
        blob = BlobAttr.of(self.weights.store.add(array), element_of(op.result), array.shape)
        made = WeightOp(blob)
        self.samples.put(made.result, lambda frame: array)
        return [made], made.result

    def _chooser(self, site: Site) -> Choose:
        """What chooses the codes of a product."""
        form, x = site.format, site.op.x
        if form.method != GPTQ:
            return CHOOSE[form.method]
        return lambda weight, grid: gptq(
            weight, self.samples.gram(x), grid, damping=form.damping, sweeps=form.sweeps
        )

    def _put(
        self,
        op: LinearOp,
        made: Sequence[Operation],
        matrix: Callable[[], Floats],
        seen: Callable[[Frame], Array] | None = None,
    ) -> None:
        """Replaces a product, and computes it with the matrix, and the rows, of its codes."""
        x, last = op.x, made[-1]
        bias = last.bias if isinstance(last, LinearOp | QuantizedLinearOp) else None
        read = [v for v in (x, op.bias, bias) if v is not None]
        put_in_place(op, made)
        if self.samples.asks_for(made[-1].results[0]):
            weight = matrix()
            self.samples.put(
                made[-1].results[0],
                lambda frame: linear(
                    frame.values[x] if seen is None else seen(frame),
                    weight,
                    None if bias is None else frame.values[bias],
                ),
            )
        self.samples.finish(op, read)
