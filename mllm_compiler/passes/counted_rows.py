"""Gathers whose computed indices count all rows in turn, which move nothing; exact.

    %rows = mllm.reshape %mask : (tensor<2x5xi1>) -> tensor<10xi1>
    %batch = mllm.reshape (mllm.iota from 0) : (tensor<2xi64>) -> tensor<2x1x1x1xi64>
    %keys = mllm.reshape (mllm.iota from 0) : (tensor<5xi64>) -> tensor<1x1x1x5xi64>
    %at = mllm.binary add (mllm.binary mul %batch, %five), %keys : (...) -> tensor<2x1x1x5xi64>
    %y = mllm.gather %rows, %at {axis = 0 : i64} : (...) -> tensor<2x1x1x5xi1>

becomes

    %y = mllm.reshape %rows : (tensor<10xi1>) -> tensor<2x1x1x5xi1>

So exporters spell a mask that is indexed by its batch and its keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import PatternRewriter

from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import (
    BinaryKind,
    BroadcastOp,
    CastOp,
    GatherOp,
    IotaOp,
    ReshapeOp,
    constant_scalar,
)
from mllm_compiler.dialects.types import element_of, is_integer, rank_of, shape_of
from mllm_compiler.passes.matching import binary, is_readable, made_by
from mllm_compiler.passes.rewrite import substitute


@dataclass(frozen=True)
class Count:
    """An integer tensor that is an offset and a multiple of the place along each axis.

    Attributes:
        offset: The first element.
        steps: What each axis adds a place, counted from the last axis (-1); others add nothing.
    """

    offset: Dim = field(default_factory=Dim)
    steps: dict[int, Dim] = field(default_factory=dict[int, Dim])


def count_of(value: SSAValue) -> Count | None:
    """How an integer tensor counts; None where it does not."""
    return _count(value) if is_readable(value) else None


def _count(value: SSAValue) -> Count | None:
    if not is_integer(element_of(value)):
        return None
    number = constant_scalar(value)
    if number is not None:
        return Count(Dim.const(int(number)))
    owner = value.owner
    if isinstance(owner, CastOp):
        return _count(owner.x)
    if isinstance(owner, BroadcastOp) and rank_of(owner.x) == rank_of(value):
        return _count(owner.x)
    counter = made_by(owner.x if isinstance(owner, ReshapeOp) else value, IotaOp)
    if counter is not None:
        return _counter(counter, value)
    return _combined(value)


def _counter(counter: IotaOp, value: SSAValue) -> Count | None:
    """A counter along the one axis of a value that has its extent, all others being 1."""
    (count,), start = shape_of(counter.result), counter.start.data[0]
    if count.as_int() == 1:
        return Count(start)
    axes = [at for at, dim in enumerate(shape_of(value)) if dim.as_int() != 1]
    if len(axes) != 1 or shape_of(value)[axes[0]] != count:
        return None
    return Count(start, {axes[0] - rank_of(value): Dim.const(counter.step.value.data)})


def _combined(value: SSAValue) -> Count | None:
    """A sum of counters, or a counter times a number."""
    total, product = binary(value, BinaryKind.ADD), binary(value, BinaryKind.MUL)
    counts = [c for v in total or product or () if (c := _count(v)) is not None]
    if len(counts) != 2:
        return None
    a, b = counts
    if total is not None:
        axes = {*a.steps, *b.steps}
        steps = {axis: a.steps.get(axis, Dim()) + b.steps.get(axis, Dim()) for axis in axes}
        return Count(a.offset + b.offset, steps)
    row, number = (b, a) if b.steps else (a, b)
    steps = {axis: step * number.offset for axis, step in row.steps.items()}
    return None if number.steps else Count(row.offset * number.offset, steps)


def gathered_in_order(op: GatherOp, rewriter: PatternRewriter) -> None:
    """A gather along the first axis that takes every row once and in order."""
    if op.axis.value.data != 0 or not shape_of(op.x):
        return
    count = count_of(op.indices)
    if count is None or count.offset != Dim():
        return
    dims, stride = shape_of(op.indices), Dim.const(1)
    for axis in range(-1, -len(dims) - 1, -1):
        if dims[axis].as_int() == 1:
            continue
        if count.steps.get(axis) != stride:
            return
        stride = stride * dims[axis]
    if stride.unknown or stride != shape_of(op.x)[0]:
        return
    substitute(rewriter, op, ReshapeOp(op.x, shape_of(op.result)))
