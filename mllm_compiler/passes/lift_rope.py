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

x may have its heads before or behind its tokens. Pairs that stand side by side are read too, a
rotation that is written half by half, one of the first dims of each head, and cosines and sines
that are looked up in weights (`rope_tables.py`). The sums are taken in another order, hence the
tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, f32, i64
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.transforms.common_subexpression_elimination import cse

from mllm_compiler.dialects import store_of
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import (
    LARGEST_CONSTANT,
    BinaryOp,
    BlobAttr,
    CastOp,
    ConcatOp,
    ConstantOp,
    IotaOp,
    ReshapeOp,
    RopeOp,
    SliceOp,
    TransposeOp,
    WeightOp,
)
from mllm_compiler.dialects.types import element_of, rank_of, shape_of
from mllm_compiler.passes.canonical_form import SHAPE_PATTERNS
from mllm_compiler.passes.matching import made_by
from mllm_compiler.passes.rewrite import On, rewrite, substitute
from mllm_compiler.passes.rope_tables import Angles, angles_of, read_table
from mllm_compiler.passes.rotations import Rotation, rotations
from mllm_compiler.weights import WeightStore

HEADS_FIRST, TOKENS_FIRST = 1, 2
"""The axis that cos and sin lack, of x with heads before, and behind, its tokens."""


def _axis(cos: SSAValue, lead: tuple[Dim, ...], x: SSAValue) -> int | None:
    """The axis that a table of rows [lead, R] lacks."""
    table = (*[Dim.const(1)] * (4 - rank_of(cos)), *shape_of(cos))[:3]
    batch, tokens = lead if len(lead) == 2 else (Dim.const(1), *lead)
    one, dims = Dim.const(1), shape_of(x)
    if table == (batch, one, tokens) and _may_equal(dims[2], tokens):
        return HEADS_FIRST
    if table == (batch, tokens, one) and _may_equal(dims[1], tokens):
        return TOKENS_FIRST
    return None


def _may_equal(a: Dim, b: Dim) -> bool:
    return a == b or a.as_int() is None or b.as_int() is None


def _spans(table: SSAValue, found: Rotation) -> bool:
    """Whether the columns of a table are those of the rotation."""
    width = shape_of(found.x)[-1].as_int()
    return width is not None and shape_of(table)[-1].as_int() == width // (1 if found.whole else 2)


def _rope(store: WeightStore, op: Operation, rewriter: PatternRewriter) -> None:
    if rank_of(op.results[0]) != 4:
        return
    for found in rotations(op):
        cos, sin = read_table(found.cos), read_table(found.sin)
        if cos is None or sin is None or not _spans(found.cos, found):
            continue
        known, axis = angles_of(cos, sin, store), _axis(found.cos, cos.lead, found.x)
        if known is None or axis is None or len(cos.lead) not in (1, 2):
            continue
        angles, twice = known
        if twice != (found.layout if found.whole else None):
            continue
        whole = _rest(op, found.x)
        build = _Builder(store, angles, interleaved=found.layout == "pairs")
        made = build.rotated(found.x if whole is None else whole[1], axis)
        if made is not None:
            substitute(rewriter, op if whole is None else whole[0], *made)
            return


def _rest(op: Operation, x: SSAValue) -> tuple[ConcatOp, SSAValue] | None:
    """The op that joins the rotated first dims of each head with its others, and whole heads."""
    users = [use.operation for use in op.results[0].uses]
    join, first = users[0] if len(users) == 1 else None, made_by(x, SliceOp)
    if not isinstance(join, ConcatOp) or len(join.xs) != 2 or first is None:
        return None
    rest = made_by(join.xs[1], SliceOp)
    if rest is None or rest.x is not first.x or join.xs[0] is not op.results[0]:
        return None
    width, steps = shape_of(x)[-1], {*first.step_list, *rest.step_list}
    starts = [s.data for s in (first.starts, rest.starts)]
    zeros = [Dim()] * 3
    fits = list(starts[0]) == [*zeros, Dim()] and list(starts[1]) == [*zeros, width]
    fits = fits and steps == {1} and shape_of(join.result) == shape_of(first.x)
    return (join, first.x) if fits else None


@dataclass
class _Builder:
    """Makes the rotation in tokens-major layout, between the ops that bring it there and back."""

    store: WeightStore
    angles: Angles
    interleaved: bool
    made: list[Operation] = field(default_factory=list[Operation])

    def __call__(self, new: Operation) -> SSAValue:
        self.made.append(new)
        return new.results[0]

    def rotated(self, x: SSAValue, axis: int) -> list[Operation] | None:
        """The ops; None where the positions are not those of x."""
        tokens = self(TransposeOp(x, (0, 2, 1, 3))) if axis == HEADS_FIRST else x
        batch, length, heads, size = shape_of(tokens)
        count = heads.as_int()
        positions = self.positions(length)
        if count is None or positions is None:
            return None
        flat = self(ReshapeOp(tokens, (batch, length, heads * size)))
        rope = RopeOp(flat, positions, self.inv_freq(), heads=count, interleaved=self.interleaved)
        back = self(ReshapeOp(self(rope), (batch, length, heads, size)))
        if axis == HEADS_FIRST:
            self(TransposeOp(back, (0, 2, 1, 3)))
        return self.made

    def positions(self, length: Dim) -> SSAValue | None:
        """[B, T] or [1, T], i64."""
        given = self.angles.positions
        if not isinstance(given, SSAValue):
            start, count = given
            return self(ReshapeOp(self(IotaOp(count, start)), (1, count)))
        if rank_of(given) not in (1, 2) or not _may_equal(shape_of(given)[-1], length):
            return None
        if element_of(given) != i64:
            given = self(CastOp(given, i64))
        if rank_of(given) == 1:
            given = self(ReshapeOp(given, (1, length)))
        return given

    def inv_freq(self) -> SSAValue:
        """[R/2]."""
        given = self.angles.inv_freq
        if isinstance(given, SSAValue):
            flat = (prod(d.as_int() or 1 for d in shape_of(given)),)
            return given if rank_of(given) == 1 else self(ReshapeOp(given, flat))
        if given.size <= LARGEST_CONSTANT:
            return self(ConstantOp.of(given))
        blob = BlobAttr.of(self.store.add(given), f32, given.shape)
        return self(WeightOp(blob, "inv_freq"))


def _transposed_twice(op: TransposeOp, rewriter: PatternRewriter) -> None:
    """A transpose of what stands twice is made once."""
    join = made_by(op.x, ConcatOp)
    if join is None or len(join.xs) != 2 or join.xs[0] is not join.xs[1]:
        return
    once = TransposeOp(join.xs[0], op.permutation)
    axis = op.permutation.index(join.axis.value.data)
    substitute(rewriter, op, once, ConcatOp([once.result, once.result], axis))


@dataclass(frozen=True)
class LiftRope(ModulePass):
    """Recognises rotary positions."""

    name = "lift-rope"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites to a fixpoint; what all rotations share is made once."""
        store = store_of(ctx)

        def pattern(op: Operation, rewriter: PatternRewriter) -> None:
            _rope(store, op, rewriter)

        rewrite(op, On(TransposeOp, _transposed_twice))
        roots = (On(BinaryOp, pattern), On(ConcatOp, pattern), On(ReshapeOp, pattern))
        if rewrite(op, *roots, *SHAPE_PATTERNS):
            cse(op)
