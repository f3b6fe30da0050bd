"""Computes only the rows that are kept, as far back as ops work row by row.

    %y = mllm.rms_norm %x, %w : [B, T, D]
    %logits = mllm.linear %y, %head : [B, T, V]
    %last = mllm.slice %logits {starts = <"0", "T - 1", "0">} : [B, 1, V]
->
    %z = mllm.slice %x {starts = <"0", "T - 1", "0">} : [B, 1, D]
    %y = mllm.rms_norm %z, %w : [B, 1, D]
    %last = mllm.linear %y, %head : [B, 1, V]

A row is a token: axis 1 of [batch, tokens, features]. What takes rows may be any op of one result.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.dialects.types import element_of, shape_of
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.graphs import (
    argument,
    graphs,
    location_of,
    pipeline_of,
    remove_dead,
    result_names,
    return_of,
)

FIRST_OPERAND = (
    mllm.LinearOp,
    mllm.MlpOp,
    mllm.GatedMlpOp,
    mllm.ActivatedLinearOp,
    mllm.NormGatedMlpOp,
    mllm.RmsNormOp,
    mllm.LayerNormOp,
    mllm.UnaryOp,
    mllm.CastOp,
)
"""Ops that map each row of their first operand to a row of the result."""

ROWS = 1
"""The axis of tokens in [batch, tokens, features]."""

Take = Callable[[SSAValue], Operation]
"""Makes the op that takes the kept rows of a value."""


def keep_last_row(graph: FuncOp, name: str) -> None:
    """Reduces the result `name` [batch, tokens, features] to its last token."""
    index, end = result_names(graph).index(name), return_of(graph)
    value = end.operands[index]
    if len(shape_of(value)) != 3 or shape_of(value)[ROWS].as_int() == 1:
        return
    made = put_before(end, last_row(value))
    end.operands[index] = made.results[0]
    hoist(made, last_row)
    remove_dead(graph)
    graph.update_function_type()


def last_row(value: SSAValue) -> Operation:
    """Takes the last row."""
    batch, rows, features = shape_of(value)
    return mllm.SliceOp(value, (0, rows - 1, 0), (batch, 1, features))


def put_before(op: Operation, made: Operation) -> Operation:
    """Inserts an op before another, with its location."""
    block = op.parent_block()
    assert block is not None
    made.location = op.location
    block.insert_op_before(made, op)
    return made


def hoist(taker: Operation, take: Take) -> SSAValue:
    """Moves an op that takes rows up to where rows are mixed; the answer is what it took.

    Args:
        taker: Takes rows of its first operand, and stands behind all that `take` reads.
        take: Makes the same op for another operand.
    """
    rows = shape_of(taker.results[0])[ROWS]
    hoisted = _row_by_row(taker)
    if not hoisted:
        return taker.results[0]
    taken: dict[SSAValue, SSAValue] = {}
    for op, kept in reversed(hoisted.items()):
        for at in kept:
            operand = op.operands[at]
            if operand.owner in hoisted:
                continue
            if operand not in taken:
                taken[operand] = put_before(taker, take(operand)).results[0]
            op.operands[at] = taken[operand]
        retype(op, rows)
        op.detach()
        block = taker.parent_block()
        assert block is not None
        block.insert_op_before(op, taker)
    value = taker.operands[0]
    taker.results[0].replace_all_uses_with(value)
    taker.detach()
    taker.erase()
    return value


def _row_by_row(taker: Operation) -> dict[Operation, list[int]]:
    """The ops, last first, whose results only the taker and one another need; their operands."""
    wanted, hoisted = {taker.operands[0]}, {taker: [0]}
    block = taker.parent_block()
    assert block is not None
    for op in reversed(list(block.ops)):
        kept = row_operands(op)
        if not kept or not any(result in wanted for result in op.results):
            continue
        uses = [use for result in op.results for use in result.uses]
        if all(u.index in hoisted.get(u.operation, ()) for u in uses):
            hoisted[op] = kept
            wanted.update(op.operands[at] for at in kept)
    del hoisted[taker]
    return hoisted


def row_operands(op: Operation) -> list[int]:
    """Which operands have the result's rows, one by one; none where the op mixes rows."""
    if isinstance(op, FIRST_OPERAND):
        return [0] if len(shape_of(op.operands[0])) == 3 else []
    if isinstance(op, mllm.AttentionOp):
        return [0] if not op.causal.value.data and op.bias is None else []
    if isinstance(op, mllm.ResidualNormOp):
        return [0, 1] if len(shape_of(op.x)) == 3 else []
    sides = _broadcast_operands(op)
    if not sides or len(shape_of(op.results[0])) != 3:
        return []
    rows, found = shape_of(op.results[0])[ROWS], list[int]()
    for at, operand in enumerate(op.operands):
        if operand not in sides:
            continue
        axis = ROWS - 3 + len(shape_of(operand))
        extent = shape_of(operand)[axis] if axis >= 0 else Dim.const(1)
        if extent == rows and len(shape_of(operand)) == 3:
            found.append(at)
        elif extent.as_int() != 1:
            return []
    return found


def _broadcast_operands(op: Operation) -> list[SSAValue]:
    """The operands that broadcast to the rows of the result; none of an op of another kind."""
    if isinstance(op, mllm.BinaryOp) or (isinstance(op, mllm.QuantizeOp) and op.axis is None):
        return list(op.operands)
    if isinstance(op, mllm.DynamicQuantizeOp):
        return [op.x] if op.axis is not None and op.axis.value.data > ROWS else []
    if isinstance(op, mllm.QuantizedLinearOp):
        return [v for v in (op.x, op.x_scale, op.x_zero) if v is not None]
    return []


def retype(op: Operation, rows: Dim) -> None:
    """Gives the results of an op another number of rows."""
    for value in op.results:
        batch, _, features = shape_of(value)
        Rewriter.replace_value_with_new_type(
            value, tensor_of(element_of(value), (batch, rows, features))
        )


def followers(value: SSAValue, prefix: int) -> list[Operation]:
    """The ops whose results have a row for each row of a value.

    Args:
        value: The value, [batch, tokens, features].
        prefix: Its leading rows that are kept; an op may read those alone.

    Raises:
        CompileError: MLC-P021, an op would need all rows.
    """
    block = value.owner if isinstance(value.owner, Block) else value.owner.parent_block()
    assert block is not None
    found, rows = list[Operation](), {value}
    for op in block.ops:
        read = {at for at, v in enumerate(op.operands) if v in rows}
        pooled = isinstance(op, mllm.ReduceOp) and ROWS in op.axis_list
        if not read or pooled or isinstance(op, ReturnOp) or _only_leading(op, prefix):
            continue
        needed = row_operands(op)
        if not needed or not read.issuperset(needed):
            raise _needs_all(op)
        found.append(op)
        rows.update(op.results)
    return found


def retype_readers(module: ModuleOp, graph: FuncOp) -> None:
    """Gives the graphs that read results of a graph their numbers of rows.

    Raises:
        CompileError: MLC-P021, an op needs all rows.
    """
    functions = {g.sym_name.data: g for g in graphs(module)}
    for edge in pipeline_of(module).edges:
        if edge.producer.data != graph.sym_name.data:
            continue
        reader = functions[edge.consumer.data]
        made = return_of(graph).operands[result_names(graph).index(edge.output.data)]
        taken = argument(reader, edge.input.data)
        fixed = taken is not None and len(shape_of(taken)) == 3 and shape_of(taken)[ROWS].as_int()
        if taken is None or not fixed or shape_of(taken)[ROWS] == shape_of(made)[ROWS]:
            continue
        rows = shape_of(made)[ROWS]
        for op in followers(taken, 0):
            retype(op, rows)
        batch, _, features = shape_of(taken)
        kind = tensor_of(element_of(taken), (batch, rows, features))
        Rewriter.replace_value_with_new_type(taken, kind)
        reader.update_function_type()
        retype_readers(module, reader)


def _only_leading(op: Operation, prefix: int) -> bool:
    """Whether an op reads none but rows that were kept at their places."""
    if isinstance(op, mllm.SliceOp) and set(op.step_list) == {1}:
        end = (op.starts.data[ROWS] + shape_of(op.result)[ROWS]).as_int()
        return end is not None and end <= prefix
    return False


def _needs_all(op: Operation) -> CompileError:
    return CompileError(
        "MLC-P021",
        f"its tokens cannot be dropped: '{op.name}' needs all of them",
        location=location_of(op),
        remedy="drop them behind it, or cut the model before it",
    )
