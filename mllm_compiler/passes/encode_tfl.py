"""`encode-tfl`: values between operators of TFLite take codes of 8 or 16 bits; not exact.

    %y = tfl.add %x, %c {..} : (tensor<1x4xf32>, tensor<4xf32>) -> tensor<1x4xf32>

becomes, where the recipe has `[values]`,

    %a = tfl.quantize %x {scale = 0.02 : f32, zero_point = 3 : i64} : .. -> tensor<1x4xi8>
    %b = tfl.pseudo_qconst %codes, none {scale = .., zero_point = ..} : .. -> tensor<4xi8>
    %z = tfl.add %a, %b {.., scale = 0.03 : f32, zero_point = -7 : i64} : .. -> tensor<1x4xi8>
    %y = tfl.dequantize %z : (tensor<1x4xi8>) -> tensor<1x4xf32>

Calibration inputs go through the graph as it stands, and say how far each value reaches
(`encodings`). An operator without a form on codes computes on reals, between `tfl.dequantize` and
`tfl.quantize`; arguments and results of the graph stay real. Weights of products have the codes
that `quantise-linears` chose; filters of convolutions get 8 bits, a scale for each output channel.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from mllm_compiler.dialects import store_of
from mllm_compiler.hal import target
from mllm_compiler.passes.calibration_data import needed_inputs
from mllm_compiler.passes.encodings import encodings_of
from mllm_compiler.passes.graphs import graphs
from mllm_compiler.passes.tfl_codes import TflCodes
from mllm_compiler.passes.tfl_forms import rules_of
from mllm_compiler.quantisation.recipe import read_recipe


@dataclass(frozen=True)
class EncodeTfl(ModulePass):
    """Gives the values of every graph the codes of a recipe.

    Attributes:
        recipe: A built-in recipe or a `.toml` file.
        data: A folder of calibration inputs, `GRAPH/NAME.npz`.
        target: Whose operators compute on codes; others of TFLite stay on reals.
    """

    name = "encode-tfl"
    recipe: str = "w8a8"
    data: str = ""
    target: str = "tflite"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Encodes the graphs in the order of the module; none where the recipe has no values.

        Raises:
            CompileError: The recipe cannot be used, or data that it needs are not there.
        """
        values, store = read_recipe(self.recipe).values, store_of(ctx)
        table = target(self.target)
        for graph in graphs(op) if values is not None else ():
            assert values is not None
            inputs = needed_inputs(self.data, graph.sym_name.data)
            found = encodings_of(graph, inputs, store, values, rules_of(values, table))
            TflCodes(graph, found, store).rewrite()
