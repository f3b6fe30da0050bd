"""Which values are a rotation of pairs: x cos + turned x sin, or each half of the pairs by itself.

The elements of a pair stand in the two halves of a head, or side by side (interleaved).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import (
    BinaryKind,
    BinaryOp,
    ConcatOp,
    ReshapeOp,
    SliceOp,
    UnaryKind,
)
from mllm_compiler.dialects.types import rank_of, shape_of
from mllm_compiler.passes.matching import binary, made_by, unary


@dataclass(frozen=True)
class Rotation:
    """A rotation of x.

    Attributes:
        x: [B, H, T, R] or [B, T, H, R].
        cos: What stands as cosines.
        sin: What stands as sines.
        layout: "halves" or "pairs".
        whole: Whether the tables have R columns, not R/2.
    """

    x: SSAValue
    cos: SSAValue
    sin: SSAValue
    layout: str
    whole: bool


def rotations(op: Operation) -> Iterator[Rotation]:
    """The ways to read an op's result as a rotation."""
    if isinstance(op, BinaryOp) and op.kind.data is BinaryKind.ADD:
        yield from _turned_sum(op)
        return
    joined = _joined(op)
    if joined is not None:
        yield from _split(*joined)


def _turned_sum(op: BinaryOp) -> Iterator[Rotation]:
    """`x cos + turn(x) sin`."""
    for straight, crossed in ((op.a, op.b), (op.b, op.a)):
        left, right = binary(straight, BinaryKind.MUL), binary(crossed, BinaryKind.MUL)
        if left is None or right is None:
            continue
        for x, cos in (left, left[::-1]):
            for turned, sin in (right, right[::-1]):
                layout = _turned(turned, x)
                if layout is not None:
                    yield Rotation(x, cos, sin, layout, whole=True)


def _turned(value: SSAValue, x: SSAValue) -> str | None:
    """How the value is x with the elements of each pair exchanged and the first negated."""
    joined = _joined(value.owner) if isinstance(value.owner, Operation) else None
    negated = unary(joined[0], UnaryKind.NEG) if joined is not None else None
    if joined is None or negated is None:
        return None
    _, second, layout = joined
    first = _part(second), _part(negated)
    return layout if first == ((x, layout, 0), (x, layout, 1)) else None


def _split(real: SSAValue, imaginary: SSAValue, layout: str) -> Iterator[Rotation]:
    """`a cos - b sin` and `b cos + a sin`, joined."""
    difference, total = binary(real, BinaryKind.SUB), binary(imaginary, BinaryKind.ADD)
    if difference is None or total is None:
        return
    products = [binary(v, BinaryKind.MUL) for v in (*difference, *total)]
    if None in products:
        return
    straight, crossed, *others = [p for p in products if p is not None]
    for a, cos in (straight, straight[::-1]):
        for b, sin in (crossed, crossed[::-1]):
            rest = {frozenset(p) for p in others}
            first, second = _part(a), _part(b)
            if first is None or second is None or first[0] is not second[0]:
                continue
            fits = rest == {frozenset((b, cos)), frozenset((a, sin))}
            fits = fits and (first[1:], second[1:]) == ((layout, 0), (layout, 1))
            if fits:
                yield Rotation(first[0], cos, sin, layout, whole=False)


def _joined(op: Operation | object) -> tuple[SSAValue, SSAValue, str] | None:
    """The first and the second elements of all pairs that an op joins, and how."""
    if isinstance(op, ConcatOp):
        last = op.axis.value.data == rank_of(op.result) - 1
        fits = last and len(op.xs) == 2 and shape_of(op.xs[0]) == shape_of(op.xs[1])
        return (op.xs[0], op.xs[1], "halves") if fits else None
    if not isinstance(op, ReshapeOp):
        return None
    dims, pairs = shape_of(op.result), made_by(op.x, ConcatOp)
    if pairs is None or len(pairs.xs) != 2 or not dims:
        return None
    half = dims[-1] // 2
    if shape_of(op.x) != (*dims[:-1], half, Dim.const(2)) or half * 2 != dims[-1]:
        return None
    columns = [made_by(x, ReshapeOp) for x in pairs.xs]
    apart = [c.x for c in columns if c is not None and shape_of(c.x) == (*dims[:-1], half)]
    return (apart[0], apart[1], "pairs") if len(apart) == 2 else None


def _part(value: SSAValue) -> tuple[SSAValue, str, int] | None:
    """x, how, and which elements of its pairs the value has."""
    op = made_by(value, SliceOp)
    if op is None:
        return _column(value)
    width, half = shape_of(op.x)[-1].as_int(), shape_of(value)[-1].as_int()
    if width is None or half is None or width != 2 * half:
        return None
    steps, starts = op.step_list, [s.as_int() for s in op.starts.data]
    if shape_of(value)[:-1] != shape_of(op.x)[:-1] or any(starts[:-1]) or None in starts:
        return None
    if set(steps[:-1]) != {1}:
        return None
    if steps[-1] == 2 and starts[-1] in (0, 1):
        return op.x, "pairs", starts[-1]
    if steps[-1] == 1 and starts[-1] in (0, half):
        return op.x, "halves", 0 if starts[-1] == 0 else 1
    return None


def _column(value: SSAValue) -> tuple[SSAValue, str, int] | None:
    """The same of one column of x seen as pairs, [..., R/2, 2]."""
    flat = made_by(value, ReshapeOp)
    cut = made_by(flat.x, SliceOp) if flat is not None else None
    pairs = made_by(cut.x, ReshapeOp) if cut is not None else None
    if cut is None or pairs is None:
        return None
    dims, starts = shape_of(pairs.x), [s.as_int() for s in cut.starts.data]
    fits = bool(dims) and shape_of(pairs.result) == (*dims[:-1], dims[-1] // 2, Dim.const(2))
    fits = fits and shape_of(value) == (*dims[:-1], dims[-1] // 2)
    fits = fits and shape_of(cut.result)[-1] == Dim.const(1) and not any(starts[:-1])
    place = starts[-1]
    return (pairs.x, "pairs", place) if fits and place in (0, 1) else None
