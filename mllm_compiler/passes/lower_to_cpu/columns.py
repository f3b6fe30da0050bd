"""A product of which each column is read by one slice has the slices as its results.

    %y = cpu.f32_linear %x, %w16, none {n = 48} : .. -> tensor<?x48xf32>
    %a = cpu.slice %y {starts = #mllm.dims<"0", "0">, ..} : .. -> tensor<?x32xf32>
    %b = cpu.slice %y {starts = #mllm.dims<"0", "32">, ..} : .. -> tensor<?x16xf32>
->
    %a, %b = cpu.f32_linear %x, %w16, none {n = 48} : .. -> (tensor<?x32xf32>, tensor<?x16xf32>)

where all cuts are between panels of 16 columns: nothing is copied.
"""

from __future__ import annotations

from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from mllm_compiler.dialects import cpu
from mllm_compiler.dialects.cpu.base import LANES, ints
from mllm_compiler.dialects.types import shape_of
from mllm_compiler.passes.graphs import block_of, users

Product = cpu.F32LinearOp | cpu.F32DequantizedLinearOp | cpu.QuantizedLinearOp


def merge(graph: FuncOp) -> None:
    """Gives products in a graph the results that are cut from them."""
    for op in list(block_of(graph).ops):
        if isinstance(op, Product) and len(op.results) == 1:
            _merge(op)


def _merge(op: Product) -> None:
    cuts = _cuts(op.y)
    if len(cuts) < 2:
        return
    made = op.create(
        operands=[*op.operands],
        result_types=[cut.y.type for cut in cuts],
        properties=dict(op.properties),
    )
    made.location = op.location
    block = op.parent_block()
    assert block is not None
    block.insert_op_before(made, op)
    for cut, result in zip(cuts, made.results, strict=True):
        cut.y.replace_all_uses_with(result)
        cut.detach()
        cut.erase()
    op.detach()
    op.erase()


def _cuts(y: SSAValue) -> list[cpu.SliceOp]:
    """The slices that read a product, in order; none where they are not all of its columns once."""
    found: dict[int, cpu.SliceOp] = {}
    for user in users(y):
        start = _first_column(user) if isinstance(user, cpu.SliceOp) else None
        if not isinstance(user, cpu.SliceOp) or start is None or start in found:
            return []
        found[start] = user
    cuts = [found[start] for start in sorted(found)]
    ends = [0]
    for cut in cuts:
        width = shape_of(cut.y)[-1].as_int()
        ends.append(ends[-1] + (width or 0))
    whole = shape_of(y)[-1].as_int()
    return cuts if sorted(found) == ends[:-1] and ends[-1] == whole else []


def _first_column(op: cpu.SliceOp) -> int | None:
    """Where a slice of columns begins, at a panel; None of any other slice."""
    x, y = shape_of(op.x), shape_of(op.y)
    *rows, start = [dim.as_int() for dim in op.starts.data]
    if x[:-1] != y[:-1] or any(row != 0 for row in rows) or set(ints(op.steps)) != {1}:
        return None
    return start if start is not None and start % LANES == 0 else None
