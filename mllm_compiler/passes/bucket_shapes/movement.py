"""Padded forms of ops that move elements: what is read by number is read where it now stands."""

from __future__ import annotations

from math import prod

from xdsl.dialects.builtin import i64
from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import BinaryKind, CompareKind
from mllm_compiler.dialects.types import element_of, shape_of
from mllm_compiler.passes.bucket_shapes.attention import joined
from mllm_compiler.passes.bucket_shapes.padded import Padded
from mllm_compiler.passes.bucket_shapes.rows import aligned, static


def concat(op: mllm.ConcatOp, p: Padded) -> None:
    """Nothing stands between the parts."""
    axis = op.axis.value.data
    joined(op, p, [p.dims(x)[axis] for x in op.xs])
    result = p.dims(op.result)
    for x in op.xs:
        for i, dim in enumerate(p.dims(x)):
            if i != axis and dim != result[i]:
                raise p.refusal(op, f"extents {dim} and {result[i]} may pad differently")


def slice_(op: mllm.SliceOp, p: Padded) -> None:
    """Elements that stand at a place which lengths decide are gathered, others sliced."""
    x, starts, steps = op.x, list[int](), list[int]()
    taken, result = p.dims(op.x), p.dims(op.result)
    for axis, (start, step) in enumerate(zip(op.starts.data, op.step_list, strict=True)):
        count, size = p.extent(result[axis]), p.extent(taken[axis])
        first = start + p.offset(taken[axis]) - p.offset(result[axis]) * step
        at = first.as_int()
        if (
            at is not None
            and min(at, at + (count - 1) * step) >= 0
            and (max(at, at + (count - 1) * step) < size)
        ):
            starts.append(at)
            steps.append(step)
            continue
        x = p.insert(mllm.GatherOp(x, _places(op, p, first, step, count, size), axis), op)
        starts.append(0)
        steps.append(1)
    shape = [p.extent(d) for d in result]
    p.replace(op, p.insert(mllm.SliceOp(x, starts, shape, steps), op))


def _places(op: Operation, p: Padded, first: Dim, step: int, count: int, size: int) -> SSAValue:
    """The places first, first + step .. that lie in an axis, [count] of i64."""
    index = p.insert(mllm.IotaOp(count, 0, step), op)
    for kind, other in (
        (BinaryKind.ADD, p.length(first)),
        (BinaryKind.MIN, p.scalar(size - 1, i64)),
        (BinaryKind.MAX, p.scalar(0, i64)),
    ):
        index = p.insert(mllm.BinaryOp(kind, index, other), op)
    return index


def iota(op: mllm.IotaOp, p: Padded) -> None:
    """The first number stands where the first real element does."""
    step, dim = op.step.value.data, p.dims(op.result)[0]
    first, count = op.start.data[0] - p.offset(dim) * step, p.extent(dim)
    if not first.symbols():
        p.replace(op, p.insert(mllm.IotaOp(count, first, step), op))
        return
    index = p.insert(mllm.IotaOp(count, 0, step), op)
    p.replace(op, p.insert(mllm.BinaryOp(BinaryKind.ADD, index, p.length(first)), op))


def embedding(op: mllm.EmbeddingOp, p: Padded) -> None:
    """Padded ids are 0."""
    static(op, p, p.dims(op.table))
    op.operands[1] = p.filled(op.ids, 0, op)


def gather(op: mllm.GatherOp, p: Padded) -> None:
    """Indices count from the first real element, negative ones from behind the last."""
    dim = p.dims(op.x)[op.axis.value.data]
    if any(d.symbols() for d in p.dims(op.indices)):
        op.operands[1] = p.filled(op.indices, 0, op)
    if not dim.symbols():
        return
    index = op.indices
    if element_of(index) != i64:
        index = p.insert(mllm.CastOp(index, i64), op)
    length = p.length(dim) if shape_of(index) else _point(op, p, p.length(dim))
    behind = p.insert(mllm.BinaryOp(BinaryKind.ADD, index, length), op)
    negative = p.insert(mllm.CompareOp(CompareKind.LT, index, p.scalar(0, i64)), op)
    index = p.insert(mllm.SelectOp(negative, behind, index), op)
    if p.offset(dim) != Dim():
        start = p.length(p.offset(dim))
        start = start if shape_of(index) else _point(op, p, start)
        index = p.insert(mllm.BinaryOp(BinaryKind.ADD, index, start), op)
    op.operands[1] = index


def _point(op: Operation, p: Padded, value: SSAValue) -> SSAValue:
    """The one element of [1] without axes."""
    return p.insert(mllm.ReshapeOp(value, ()), op)


def pad(op: mllm.PadOp, p: Padded) -> None:
    """What is padded already is as the op pads."""
    before, after = op.amounts
    axes = tuple(i for i in range(len(before)) if before[i] > 0 or after[i] > 0)
    op.operands[0] = p.filled(op.x, op.value.value.data, op, axes)


def broadcast(op: mllm.BroadcastOp, p: Padded) -> None:
    """Axes keep their extents, or are repeated."""
    aligned(op, p)


def reshape(op: mllm.ReshapeOp, p: Padded) -> None:
    """Axes are joined or split only with the padded one outermost: its elements stay together."""
    for before, after in _groups(op, p, p.dims(op.x), p.dims(op.result)):
        wide = [[d for d in side if p.extent(d) > 1] for side in (before, after)]
        if len(wide[0]) <= 1 and len(wide[1]) <= 1:
            continue
        inner = next((d for side in wide for d in side[1:] if d.symbols()), None)
        if inner is not None:
            raise p.refusal(op, f"it joins or splits an axis of {inner} elements that is padded")


def _groups(
    op: Operation, p: Padded, before: tuple[Dim, ...], after: tuple[Dim, ...]
) -> list[tuple[list[Dim], list[Dim]]]:
    """The axes of both sides in the smallest groups of equally many elements."""
    groups: list[tuple[list[Dim], list[Dim]]] = []
    sides = ([d for d in before if d.as_int() != 1], [d for d in after if d.as_int() != 1])
    while any(sides):
        group: tuple[list[Dim], list[Dim]] = ([], [])
        while not all(group) or _product(group[0]) != _product(group[1]):
            sizes = [prod(p.extent(d) for d in side) for side in group]
            short = 0 if not group[0] or (group[1] and sizes[0] < sizes[1]) else 1
            if not sides[short]:
                short = 1 - short
            if not sides[short]:
                if not any(d.symbols() for side in group for d in side if p.extent(d) > 1):
                    break
                raise p.refusal(op, "its axes cannot be told apart")
            group[short].append(sides[short].pop(0))
        groups.append(group)
    return groups


def _product(dims: list[Dim]) -> Dim:
    return prod(dims, start=Dim.const(1))
