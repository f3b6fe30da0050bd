"""`quantise-embeddings`: tables that tokens are looked up in become codes; not exact.

    %y = mllm.embedding %w, %ids : (tensor<9x4xf32>, tensor<?xi64>) -> tensor<?x4xf32>

becomes

    %c = mllm.weight #mllm.blob<.., i8, [9, 4]>
    %s = mllm.weight #mllm.blob<.., f16, [9, 1]>
    %q = mllm.embedding %c, %ids : (tensor<9x4xi8>, tensor<?xi64>) -> tensor<?x4xi8>
    %t = mllm.embedding %s, %ids : (tensor<9x1xf16>, tensor<?xi64>) -> tensor<?x1xf16>
    %y = mllm.dequantize %q, %t : (tensor<?x4xi8>, tensor<?x1xf16>) -> tensor<?x4xf32>

so that only the rows that are looked up become numbers. A table that is the head too, in one
format, is one blob.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from mllm_compiler.dialects import store_of
from mllm_compiler.dialects.mllm import EmbeddingOp
from mllm_compiler.dialects.types import bits_of, element_of
from mllm_compiler.passes.graphs import block_of, graphs, remove_dead
from mllm_compiler.passes.mlp_parts import put_in_place
from mllm_compiler.passes.quantise_linears import CHOOSE
from mllm_compiler.passes.quantised_weights import WeightCodes, looked_up
from mllm_compiler.quantisation.recipe import Format, read_recipe


@dataclass(frozen=True)
class QuantiseEmbeddings(ModulePass):
    """Quantises the tables of look-ups.

    Attributes:
        recipe: A built-in recipe or a `.toml` file.
    """

    name = "quantise-embeddings"
    recipe: str = "w8a8"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Replaces every look-up in a weight that the recipe changes.

        Raises:
            CompileError: The recipe cannot be used.
        """
        form = read_recipe(self.recipe).embeddings
        if form is None:
            return
        weights = WeightCodes(store_of(ctx))
        for graph in graphs(op):
            for lookup in list(block_of(graph).ops):
                if isinstance(lookup, EmbeddingOp):
                    _quantise(lookup, form, weights)
            remove_dead(graph)


def _quantise(op: EmbeddingOp, form: Format, weights: WeightCodes) -> None:
    weight, element = weights.known(op.table), element_of(op.result)
    if weight is None or form.bits >= bits_of(element):
        return
    grid = form.grid(weight.value.dims[1])
    if grid is None:
        half = weights.halved(weight)
        put_in_place(op, [half, *looked_up([half], op.ids, None, element)])
        return
    coded = weights.coded(weight, grid, CHOOSE[form.method])
    put_in_place(op, [*coded.ops, *looked_up(coded.ops, op.ids, grid.block_size, element)])
