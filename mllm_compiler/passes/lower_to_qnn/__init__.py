"""`lower-to-qnn`: every op of a graph becomes operators of QNN; exact to rounding.

    %y = mllm.rms_norm %x, %w {epsilon = 1.0e-5 : f64} : (tensor<1x4x8xf32>, ..) -> ..
->
    %y = qnn.rms_norm %x, %w {axes = array<i64: 2>, epsilon = 1.0e-5 : f64} : ..

Values stay real here; `encode-qnn` makes halves or codes of them. Whole numbers have 32 bits, as
HTP has no more, also those that a graph takes and gives. Shapes must be static: `--dim` fixes a
dimension or makes buckets of it. A graph is told its chip: `qnn.soc = #qnn.soc<"sm8650", 57, 75>`.
HTP has one GELU, which its form by tanh becomes too (they are within 5e-4 of one another).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, i32, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.transforms.common_subexpression_elimination import cse

from mllm_compiler.dialects import qnn, store_of
from mllm_compiler.dialects.dims import tensor_of
from mllm_compiler.dialects.mllm import BlobAttr, ConstantOp, WeightOp, array_of
from mllm_compiler.dialects.qnn import QnnOp, SocAttr
from mllm_compiler.dialects.qnn.soc import SOC
from mllm_compiler.dialects.types import element_of, extents
from mllm_compiler.hal import target
from mllm_compiler.passes.called_types import call_as_typed
from mllm_compiler.passes.graphs import block_of, functions_of, return_of
from mllm_compiler.passes.lower_to_qnn.builder import Builder
from mllm_compiler.passes.lower_to_qnn.table import LOWERINGS
from mllm_compiler.passes.lowered_attention import positions_of
from mllm_compiler.passes.lowering import lower_graphs
from mllm_compiler.weights import WeightStore


@dataclass(frozen=True)
class LowerToQnn(ModulePass):
    """Lowers every graph of a module from mllm to qnn.

    Attributes:
        soc: The chip; without one the target's default.
    """

    name = "lower-to-qnn"
    soc: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Lowers the graphs in the order of the module.

        Raises:
            CompileError: MLC-R001, an op has no operators; MLC-R007, there is no such chip.
        """
        soc, store = target("qnn").soc(self.soc or None), store_of(ctx)

        def builder(graph: FuncOp, at: Operation, store: WeightStore) -> Builder:
            return Builder(graph, at, store, positions=positions_of(graph))

        mine = functions_of(op, "qnn")
        for graph in mine:
            narrow(graph, store)
        lower_graphs(op, store, target="qnn", lowerings=LOWERINGS, builder=builder, own=QnnOp)
        for graph in mine:
            cse(graph)
            give_apart(graph)
            graph.update_function_type()
            call_as_typed(op, graph)
            graph.attributes[SOC] = SocAttr.of(soc.name, soc.model, soc.arch)


def narrow(graph: FuncOp, store: WeightStore) -> None:
    """Gives whole numbers that a graph takes or knows 32 bits; larger ones saturate."""
    block = block_of(graph)
    for argument in block.args:
        if element_of(argument) == i64:
            argument._type = tensor_of(i32, extents(argument))  # pyright: ignore[reportPrivateUsage]
    for op in list(block.ops):
        if not isinstance(op, ConstantOp | WeightOp) or element_of(op.result) != i64:
            continue
        if isinstance(op, ConstantOp):
            array = array_of(op.value)
        else:
            array = store.array(op.value.digest.data, "i64", op.value.dims)
        bounds = np.iinfo(np.int32)
        small = array.clip(bounds.min, bounds.max).astype(np.int32)
        made = ConstantOp.of(small) if isinstance(op, ConstantOp) else _weight(small, store)
        block.insert_op_before(made, op)
        op.result.replace_all_uses_with(made.result)
        op.detach()
        op.erase()


def _weight(array: np.ndarray[tuple[int, ...], np.dtype[np.int32]], store: WeightStore) -> WeightOp:
    return WeightOp(BlobAttr.of(store.add(array), i32, array.shape))


def give_apart(graph: FuncOp) -> None:
    """Gives each result an op of its own: no tensor is both in and out, or out twice."""
    end, given = return_of(graph), set[object]()
    for at, value in enumerate(end.operands):
        if isinstance(value.owner, QnnOp) and value not in given:
            given.add(value)
            continue
        made = qnn.ReshapeOp.call([value], value.type)
        block_of(graph).insert_op_before(made, end)
        end.operands[at] = made.y
