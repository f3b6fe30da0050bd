"""`lift-rope`: the arithmetic of rotary positions becomes `mllm.rope`; tolerance 1e-5.

    %angles = ...positions times inverse frequencies... : tensor<1x3x4xf32>
    %e = mllm.concat %angles, %angles {axis = 2 : i64} : (...) -> tensor<1x3x8xf32>
    %cos = mllm.reshape (mllm.unary cos %e) : (...) -> tensor<1x1x3x8xf32>
    %sin = mllm.reshape (mllm.unary sin %e) : (...) -> tensor<1x1x3x8xf32>
    %low = mllm.slice %x {starts = #mllm.dims<"0", "0", "0", "0">, ...} : ... -> tensor<...>
    %high = mllm.slice %x {starts = #mllm.dims<"0", "0", "0", "4">, ...} : ... -> tensor<...>
    %turned = mllm.concat (mllm.unary neg %high), %low {axis = 3 : i64} : ... -> tensor<1x2x3x8xf32>
    %y = mllm.binary add (mllm.binary mul %x, %cos), (mllm.binary mul %turned, %sin) : ...

becomes, around transposes and reshapes that bring heads behind tokens and back,

    %y = mllm.rope %x, %positions, %inv_freq {heads = 2 : i64} : (tensor<1x3x16xf32>, ...) -> ...

x may have its heads before or behind its tokens. The sums are taken in another order, hence the
tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, i64
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.transforms.common_subexpression_elimination import cse

from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import (
    BinaryKind,
    BinaryOp,
    CastOp,
    ConcatOp,
    ReshapeOp,
    RopeOp,
    SliceOp,
    TransposeOp,
    UnaryKind,
)
from mllm_compiler.dialects.types import element_of, is_integer, rank_of, shape_of
from mllm_compiler.passes.canonical_form import SHAPE_PATTERNS
from mllm_compiler.passes.matching import binary, made_by, peel, transposed, unary
from mllm_compiler.passes.rewrite import On, rewrite, substitute

HEADS_FIRST, TOKENS_FIRST = 1, 2
"""The axis that cos and sin lack, of x with heads before, and behind, its tokens."""


@dataclass(frozen=True)
class Angles:
    """What the angles of a rotation are made from.

    Attributes:
        positions: [B, T], [1, T] or [T], integers.
        inv_freq: [R/2], or that with extents of 1 around.
    """

    positions: SSAValue
    inv_freq: SSAValue


def _halves(value: SSAValue) -> SSAValue | None:
    """f, where the value is f joined with itself along its last axis."""
    op = made_by(value, ConcatOp)
    if op is None or len(op.xs) != 2 or op.xs[0] is not op.xs[1]:
        return None
    return op.xs[0] if op.axis.value.data == rank_of(value) - 1 else None


def _angles(value: SSAValue) -> Angles | None:
    """What the value [B, T, R/2] is the outer product of."""
    inner, perm = transposed(value)
    pair = binary(inner, BinaryKind.MUL)
    if pair is None or rank_of(inner) != 3 or perm not in ((0, 1, 2), (0, 2, 1)):
        return None
    token_axis = 1 if perm == (0, 1, 2) else 2
    for steps, frequencies in (pair, pair[::-1]):
        positions, inv_freq = peel(steps), peel(frequencies)
        wide = [d for d in shape_of(inv_freq) if d.as_int() != 1]
        if not is_integer(element_of(positions)) or len(wide) > 1:
            continue
        if _varies_along(steps, token_axis) and _varies_along(frequencies, 3 - token_axis):
            return Angles(positions, inv_freq)
    return None


def _varies_along(value: SSAValue, axis: int) -> bool:
    """Whether a factor has extent 1 along the other of the two last axes."""
    dims = (*[Dim.const(1)] * (3 - rank_of(value)), *shape_of(value))
    return dims[3 - axis].as_int() == 1


def _tables(cos: SSAValue, sin: SSAValue) -> tuple[Angles, int] | None:
    """The angles of cos and sin, and the axis along which they are the same for all heads."""
    joined: list[SSAValue] = []
    for table, kind in ((cos, UnaryKind.COS), (sin, UnaryKind.SIN)):
        shaped = made_by(table, ReshapeOp)
        inner = unary(shaped.x, kind) if shaped is not None else None
        if inner is None:
            return None
        joined.append(inner)
    angles = _halves(joined[0])
    if joined[0] is not joined[1] or angles is None or shape_of(cos) != shape_of(sin):
        return None
    found, axis = _angles(angles), _head_axis(cos, joined[0])
    return (found, axis) if found is not None and axis is not None else None


def _head_axis(table: SSAValue, joined: SSAValue) -> int | None:
    """The axis that a reshape has added to [B, T, R]."""
    for axis in (HEADS_FIRST, TOKENS_FIRST):
        dims = list(shape_of(joined))
        dims.insert(axis, Dim.const(1))
        if shape_of(table) == tuple(dims):
            return axis
    return None


def _turned(value: SSAValue, x: SSAValue) -> bool:
    """Whether the value is x with its halves exchanged and the then first one negated."""
    op, axis = made_by(value, ConcatOp), rank_of(x) - 1
    if op is None or len(op.xs) != 2 or op.axis.value.data != axis:
        return False
    width = shape_of(x)[axis].as_int()
    negated = unary(op.xs[0], UnaryKind.NEG)
    if width is None or width % 2 or negated is None:
        return False
    return _half(negated, x, width // 2, width) and _half(op.xs[1], x, 0, width)


def _half(value: SSAValue, x: SSAValue, start: int, width: int) -> bool:
    """Whether the value is the half of x that begins at `start`."""
    op = made_by(value, SliceOp)
    if op is None or op.x is not x or set(op.step_list) != {1}:
        return False
    starts = [s.as_int() for s in op.starts.data]
    whole = shape_of(value)[:-1] == shape_of(x)[:-1]
    return (
        whole
        and starts == [0] * (len(starts) - 1) + [start]
        and shape_of(value)[-1] == Dim.const(width // 2)
    )


def _rope(op: BinaryOp, rewriter: PatternRewriter) -> None:
    if op.kind.data is not BinaryKind.ADD or rank_of(op.result) != 4:
        return
    for straight, crossed in ((op.a, op.b), (op.b, op.a)):
        found = _rotation(straight, crossed)
        if found is not None:
            x, angles, axis = found
            substitute(rewriter, op, *_rotated(x, angles, axis))
            return


def _rotation(straight: SSAValue, crossed: SSAValue) -> tuple[SSAValue, Angles, int] | None:
    """x, angles and head axis, where the sum of the two is a rotation of x."""
    left, right = binary(straight, BinaryKind.MUL), binary(crossed, BinaryKind.MUL)
    if left is None or right is None:
        return None
    for x, cos in (left, left[::-1]):
        for turned, sin in (right, right[::-1]):
            tables = _tables(cos, sin) if _turned(turned, x) else None
            if tables is not None and _spans(cos, x):
                return x, *tables
    return None


def _spans(table: SSAValue, x: SSAValue) -> bool:
    """Whether all of each head is rotated."""
    return shape_of(table)[-1] == shape_of(x)[-1]


def _rotated(x: SSAValue, angles: Angles, axis: int) -> list[Operation]:
    """The rotation of x in tokens-major layout, between the ops that bring it there and back."""
    made: list[Operation] = []

    def add(new: Operation) -> SSAValue:
        made.append(new)
        return new.results[0]

    tokens = add(TransposeOp(x, (0, 2, 1, 3))) if axis == HEADS_FIRST else x
    batch, length, heads, size = shape_of(tokens)
    count = heads.as_int() or 1
    flat = add(ReshapeOp(tokens, (batch, length, heads * size)))
    positions = angles.positions
    if element_of(positions) != i64:
        positions = add(CastOp(positions, i64))
    if rank_of(positions) != 2:
        positions = add(ReshapeOp(positions, (1, length)))
    inv_freq = angles.inv_freq
    if rank_of(inv_freq) != 1:
        inv_freq = add(ReshapeOp(inv_freq, (prod(d.as_int() or 1 for d in shape_of(inv_freq)),)))
    turned = add(RopeOp(flat, positions, inv_freq, heads=count))
    back = add(ReshapeOp(turned, (batch, length, heads, size)))
    if axis == HEADS_FIRST:
        add(TransposeOp(back, (0, 2, 1, 3)))
    return made


@dataclass(frozen=True)
class LiftRope(ModulePass):
    """Recognises rotary positions."""

    name = "lift-rope"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites to a fixpoint; what all rotations share is made once."""
        if rewrite(op, On(BinaryOp, _rope), *SHAPE_PATTERNS):
            cse(op)
