"""`lower-to-tfl`: every op of a graph becomes operators of TFLite; exact to rounding.

    %y = mllm.rms_norm %x, %w {epsilon = 1.0e-5 : f64} : (tensor<1x4x8xf32>, ..) -> ..
->
    %a = tfl.mul %x, %x {fused_activation_function = "NONE"} : ..
    %b = tfl.mean %a, %axes {keep_dims = true} : ..
    %c = tfl.add %b, %epsilon : ..
    %d = tfl.rsqrt %c : ..
    %e = tfl.mul %x, %d : ..
    %y = tfl.mul %e, %w : ..

Shapes must be static: `--dim` fixes a dimension or makes buckets of it. Weights and constants stay
as they are. A target whose compiler takes files of TFLite, but not every operator, gets what it
takes: with `target=neuron`, `-x` is a product with -1, cosines of positions are rows of a table,
and masks add -1e4 to scores, as a half can; a query that sees no key attends by score there.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from mllm_compiler.dialects import store_of
from mllm_compiler.dialects.tfl import TflOp
from mllm_compiler.hal import target
from mllm_compiler.passes.lower_to_tfl.builder import Builder
from mllm_compiler.passes.lower_to_tfl.table import LOWERINGS
from mllm_compiler.passes.lowered_attention import positions_of
from mllm_compiler.passes.lowering import HALF_HIDDEN, HIDDEN, lower_graphs
from mllm_compiler.weights import WeightStore


@dataclass(frozen=True)
class LowerToTfl(ModulePass):
    """Lowers every graph of a module from mllm to tfl.

    Attributes:
        target: Whose operators are written.
    """

    name = "lower-to-tfl"
    target: str = "tflite"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Lowers the graphs in the order of the module.

        Raises:
            CompileError: MLC-R001, an op has no operators.
        """
        table = target(self.target)
        hidden = HALF_HIDDEN if table.halves else HIDDEN

        def builder(graph: FuncOp, at: Operation, store: WeightStore) -> Builder:
            return Builder(
                graph,
                at,
                store,
                hidden=hidden,
                target=self.target,
                operators=table.operators,
                positions=positions_of(graph),
            )

        lower_graphs(
            op,
            store_of(ctx),
            target=self.target,
            lowerings=LOWERINGS,
            builder=builder,
            own=TflOp,
        )
