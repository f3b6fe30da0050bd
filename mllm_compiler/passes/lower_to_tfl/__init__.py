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
as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from mllm_compiler.dialects import store_of
from mllm_compiler.dialects.tfl import TflOp
from mllm_compiler.passes.lower_to_tfl.builder import Builder
from mllm_compiler.passes.lower_to_tfl.table import LOWERINGS
from mllm_compiler.passes.lowering import lower_graphs


@dataclass(frozen=True)
class LowerToTfl(ModulePass):
    """Lowers every graph of a module from mllm to tfl."""

    name = "lower-to-tfl"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Lowers the graphs in the order of the module.

        Raises:
            CompileError: MLC-R001, an op has no operators.
        """
        lower_graphs(
            op,
            store_of(ctx),
            target="tflite",
            lowerings=LOWERINGS,
            builder=Builder,
            own=TflOp,
        )
