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
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from mllm_compiler.dialects import store_of
from mllm_compiler.dialects.mllm import ConstantOp, WeightOp
from mllm_compiler.dialects.tfl import TflOp
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.fused_parts import PARTS, take_apart
from mllm_compiler.passes.graphs import block_of, graphs, location_of, remove_dead
from mllm_compiler.passes.lower_to_tfl.builder import Builder
from mllm_compiler.passes.lower_to_tfl.table import LOWERINGS
from mllm_compiler.weights import WeightStore

KEPT = (WeightOp, ConstantOp, TflOp, ReturnOp)


@dataclass(frozen=True)
class LowerToTfl(ModulePass):
    """Lowers every graph of a module from mllm to tfl."""

    name = "lower-to-tfl"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Lowers the graphs in the order of the module.

        Raises:
            CompileError: MLC-R001, an op has no operators.
        """
        for graph in graphs(op):
            lower_graph(graph, store_of(ctx))


def lower_graph(graph: FuncOp, store: WeightStore) -> None:
    """Lowers one graph in place."""
    take_apart(graph, PARTS.keys() - LOWERINGS.keys())
    ops = [op for op in block_of(graph).ops if not isinstance(op, KEPT)]
    if ops:
        builder = Builder(graph, ops[0], store)
        for op in ops:
            _lower_op(op, builder)
    remove_dead(graph)


def _lower_op(op: Operation, builder: Builder) -> None:
    lowering = LOWERINGS.get(type(op))
    if lowering is None:
        raise CompileError(
            "MLC-R001",
            f"'{op.name}' has no home on 'tflite': no operators",
            location=location_of(op),
            remedy="use the target c, or replace the op in the model",
        )
    builder.at = op
    made = lowering(op, builder)
    if made is None:
        return
    op.results[0].replace_all_uses_with(made)
    op.detach()
    op.erase()
