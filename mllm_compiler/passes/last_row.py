"""Keeps the last row of a result, and computes only that row as far back as ops work row by row.

    %y = mllm.rms_norm %x, %w : [B, T, D]
    %logits = mllm.linear %y, %head : [B, T, V]
->
    %z = mllm.slice %x {starts = <"0", "T - 1", "0">} : [B, 1, D]
    %y = mllm.rms_norm %z, %w : [B, 1, D]
    %logits = mllm.linear %y, %head : [B, 1, V]
"""

from __future__ import annotations

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.dialects.types import element_of, shape_of
from mllm_compiler.passes.graphs import block_of, remove_dead, result_names, return_of, users

FIRST_OPERAND = (
    mllm.LinearOp,
    mllm.MlpOp,
    mllm.GatedMlpOp,
    mllm.RmsNormOp,
    mllm.LayerNormOp,
    mllm.UnaryOp,
    mllm.CastOp,
)
"""Ops that map each row of their first operand to a row of the result."""

ROWS = 1
"""The axis of tokens in [batch, tokens, features]."""


def keep_last_row(graph: FuncOp, name: str) -> None:
    """Reduces the result `name` [batch, tokens, features] to its last token."""
    index, end = result_names(graph).index(name), return_of(graph)
    value = end.operands[index]
    if len(shape_of(value)) != 3 or shape_of(value)[ROWS].as_int() == 1:
        return
    hoisted = _row_by_row(graph, value)
    slices: dict[SSAValue, SSAValue] = {}
    for op in hoisted[::-1]:
        for operand in _row_operands(op):
            if operand.owner not in hoisted:
                at = list(op.operands).index(operand)
                op.operands[at] = slices.get(operand) or _slice(operand, op, slices)
        _retype(op)
    if value.owner not in hoisted:
        end.operands[index] = _slice(value, end, slices)
    remove_dead(graph)
    graph.update_function_type()


def _row_by_row(graph: FuncOp, value: SSAValue) -> list[Operation]:
    """The ops, last first, of whose results only the last row is needed."""
    wanted, hoisted = {value}, list[Operation]()
    for op in reversed(list(block_of(graph).ops)):
        if not op.results or op.results[0] not in wanted or not _row_operands(op):
            continue
        if all(u in hoisted or isinstance(u, ReturnOp) for u in users(op.results[0])) and (
            op.results[0] is value or not _returned(op.results[0])
        ):
            hoisted.append(op)
            wanted.update(_row_operands(op))
    return hoisted


def _returned(value: SSAValue) -> bool:
    return any(isinstance(u, ReturnOp) for u in users(value))


def _row_operands(op: Operation) -> list[SSAValue]:
    """The operands that have the result's rows; none where the op mixes rows."""
    if isinstance(op, FIRST_OPERAND):
        return [op.operands[0]] if len(shape_of(op.operands[0])) == 3 else []
    if not isinstance(op, mllm.BinaryOp) or len(shape_of(op.result)) != 3:
        return []
    rows, found = shape_of(op.result)[ROWS], list[SSAValue]()
    for operand in dict.fromkeys(op.operands):
        axis = ROWS - 3 + len(shape_of(operand))
        extent = shape_of(operand)[axis] if axis >= 0 else Dim.const(1)
        if extent == rows and len(shape_of(operand)) == 3:
            found.append(operand)
        elif extent.as_int() != 1:
            return []
    return found


def _slice(value: SSAValue, before: Operation, slices: dict[SSAValue, SSAValue]) -> SSAValue:
    batch, rows, features = shape_of(value)
    made = mllm.SliceOp(value, (0, rows - 1, 0), (batch, 1, features))
    made.location = before.location
    block = before.parent_block()
    assert block is not None
    block.insert_op_before(made, before)
    slices[value] = made.result
    return made.result


def _retype(op: Operation) -> None:
    value = op.results[0]
    batch, _, features = shape_of(value)
    kind = tensor_of(element_of(value), (batch, Dim.const(1), features))
    Rewriter.replace_value_with_new_type(value, kind)
