"""`encode-qnn`: the real values of a graph in qnn ops become halves, or codes of a recipe.

    func.func @f(%x: tensor<4x8xf32>) -> tensor<4x8xf32>
      %y = qnn.relu %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
->
    %h = qnn.cast %x : (tensor<4x8xf32>) -> tensor<4x8xf16>
    %y = qnn.relu %h : (tensor<4x8xf16>) -> tensor<4x8xf16>
    %z = qnn.cast %y : (tensor<4x8xf16>) -> tensor<4x8xf32>
-> or, with a recipe that has `[values]`
    %q = qnn.quantize %x {scale = 0.03 : f64, zero_point = 128 : i64} : .. -> tensor<4x8xui8>
    %y = qnn.relu %q {scale = 0.02 : f64, zero_point = 0 : i64} : .. -> tensor<4x8xui8>
    %z = qnn.dequantize %y : (tensor<4x8xui8>) -> tensor<4x8xf32>

A graph takes and gives what it took and gave. What hides a score, less than -1e6, is -3e4 in
halves: no sum with a score is beyond them. Then each op is held to what the graph's HTP has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, f16, f32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import VerifyException

from mllm_compiler.dialects import qnn, store_of
from mllm_compiler.dialects.dims import tensor_of
from mllm_compiler.dialects.mllm import BlobAttr, ConstantOp, WeightOp
from mllm_compiler.dialects.mllm.constants import LARGEST_CONSTANT
from mllm_compiler.dialects.qnn import QnnOp, StaticTensorOp
from mllm_compiler.dialects.qnn.unary import is_product_of_bytes
from mllm_compiler.dialects.types import element_of, extents
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.calibration_data import needed_inputs
from mllm_compiler.passes.encodings import encodings_of
from mllm_compiler.passes.folded_weights import numbers_of
from mllm_compiler.passes.graphs import block_of, functions_of, location_of, remove_dead, return_of
from mllm_compiler.passes.qnn_codes import QnnCodes
from mllm_compiler.passes.qnn_forms import rules_of
from mllm_compiler.quantisation.recipe import read_recipe
from mllm_compiler.quantisation.values import UNSEEN
from mllm_compiler.weights import WeightStore

HIDDEN: Final = np.float32(-3e4)
"""What hides a score, in halves."""

MOST: Final = np.float32(65504)
"""The largest of them."""


@dataclass(frozen=True)
class EncodeQnn(ModulePass):
    """Gives values of every graph the types that HTP computes on.

    Attributes:
        recipe: The recipe; without one, or without `[values]` in it, values are halves.
        data: Samples, `GRAPH/NNNN.npz`.
    """

    name = "encode-qnn"
    recipe: str = ""
    data: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Encodes the graphs in the order of the module.

        Raises:
            CompileError: `MLC-R008`, the chip lacks an operator in a form; `MLC-Q002`, a recipe
                with `[values]` has no samples.
        """
        values, store = None if not self.recipe else read_recipe(self.recipe).values, store_of(ctx)
        for graph in functions_of(op, "qnn"):
            if values is not None:
                inputs = needed_inputs(self.data, graph.sym_name.data)
                found = encodings_of(graph, inputs, store, values, rules_of(values.bits))
                QnnCodes(graph, found, store).rewrite()
            halve(graph, store)
            remove_dead(graph)
            check_forms(graph)


def halve(graph: FuncOp, store: WeightStore) -> None:
    """Makes halves of the values that are real, but of arguments and results."""
    block, end = block_of(graph), return_of(graph)
    for argument in block.args:
        if element_of(argument) == f32:
            _read_through_cast(argument, block.first_op)
    for op in list(block.ops):
        if isinstance(op, WeightOp | ConstantOp) and element_of(op.result) == f32:
            _halve_stored(op, store)
        if isinstance(op, QnnOp) and element_of(op.y) == f32 and not _gives(op):
            op.y._type = tensor_of(f16, extents(op.y))  # pyright: ignore[reportPrivateUsage]
    for at, value in enumerate(end.operands):
        if element_of(value) == f16:
            made = qnn.CastOp.call([value], tensor_of(f32, extents(value)))
            if isinstance(value.owner, Operation):
                made.location = value.owner.location
            block.insert_op_before(made, end)
            end.operands[at] = made.y


def _gives(op: QnnOp) -> bool:
    """Whether an op makes reals of codes for the caller alone, and HTP makes the right ones."""
    if not isinstance(op, qnn.DequantizeOp) or is_product_of_bytes(op.x):
        return False
    return all(isinstance(use.operation, ReturnOp) for use in op.y.uses)


def _read_through_cast(argument: SSAValue, before: Operation | None) -> None:
    """Lets what reads an argument read its halves; codes are made of the whole."""
    readers = [use for use in argument.uses if not isinstance(use.operation, qnn.QuantizeOp)]
    if not readers:
        return
    made = qnn.CastOp.call([argument], tensor_of(f16, extents(argument)))
    assert before is not None
    made.location = readers[0].operation.location
    for use in readers:
        use.operation.operands[use.index] = made.y
    block = before.parent_block()
    assert block is not None
    block.insert_op_before(made, before)


def _halve_stored(op: WeightOp | ConstantOp, store: WeightStore) -> None:
    """Halves in place of a stored value; scales of codes stay."""
    readers = [use for use in op.result.uses if not isinstance(use.operation, StaticTensorOp)]
    numbers = numbers_of(op.result, store) if readers else None
    if numbers is None:
        return
    held = np.where(numbers < UNSEEN, HIDDEN, numbers.clip(-MOST, MOST)).astype(np.float16)
    made: WeightOp | ConstantOp
    if held.size <= LARGEST_CONSTANT:
        made = ConstantOp.of(held)
    else:
        name = op.weight_name if isinstance(op, WeightOp) else None
        blob = BlobAttr.of(store.add(held), f16, held.shape)
        made = WeightOp(blob, None if name is None else name.data)
    block = op.parent_block()
    assert block is not None
    block.insert_op_before(made, op)
    for use in readers:
        use.operation.operands[use.index] = made.result
    store.release()


def check_forms(graph: FuncOp) -> None:
    """Holds each op to the forms that the graph's HTP has.

    Raises:
        CompileError: `MLC-R008`.
    """
    for op in block_of(graph).ops:
        if not isinstance(op, QnnOp):
            continue
        try:
            op.verify_()
        except VerifyException as fault:
            raise CompileError(
                "MLC-R008",
                str(fault),
                location=location_of(op),
                remedy="give another recipe, or another --soc",
            ) from fault
