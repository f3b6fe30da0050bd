"""`cancel-transposes`: a transpose moves up to the one that it undoes, and both go; exact.

    %1 = mllm.transpose %x {perm = array<i64: 0, 2, 1>} : (tensor<2x3x4xf32>) -> tensor<2x4x3xf32>
    %2 = mllm.unary silu %1 : (tensor<2x4x3xf32>) -> tensor<2x4x3xf32>
    %3 = mllm.binary mul %2, %y : (tensor<2x4x3xf32>, tensor<2x4x3xf32>) -> tensor<2x4x3xf32>
    %4 = mllm.transpose %3 {perm = array<i64: 0, 2, 1>} : (tensor<2x4x3xf32>) -> tensor<2x3x4xf32>

becomes

    %2 = mllm.unary silu %x : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
    %3 = mllm.transpose %y {perm = array<i64: 0, 2, 1>} : (tensor<2x4x3xf32>) -> tensor<2x3x4xf32>
    %4 = mllm.binary mul %2, %3 : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>

through elementwise ops, conversions and slices that nothing else reads, where fewer transposes are
left than there were. Transposes and reshapes that follow one another are merged by
`canonical-form`, whose patterns run here too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from mllm_compiler.dialects.mllm import (
    BinaryOp,
    CastOp,
    ConstantOp,
    SliceOp,
    TransposeOp,
    UnaryOp,
    constant_array,
    constant_scalar,
)
from mllm_compiler.dialects.types import element_of, rank_of, shape_of
from mllm_compiler.passes.canonical_form import SHAPE_PATTERNS
from mllm_compiler.passes.graphs import users
from mllm_compiler.passes.rewrite import On, rewrite, substitute


@dataclass
class Turned:
    """A value, made again in the order that a transpose gives its axes.

    Attributes:
        op: The transpose.
        made: The ops that make it, in order.
        saved: How many transposes are not needed any more, less those that are made.
    """

    op: TransposeOp
    made: list[Operation] = field(default_factory=list[Operation])
    saved: int = 1

    @property
    def permutation(self) -> tuple[int, ...]:
        """The axes of the old order in the new one."""
        return self.op.permutation

    def value(self, value: SSAValue) -> SSAValue:
        """The value with its axes in the new order."""
        owner = value.owner
        if isinstance(owner, TransposeOp) and self._undoes(owner):
            self.saved += value.has_one_use()
            return owner.x
        if value.has_one_use():
            if isinstance(owner, UnaryOp):
                return self._add(UnaryOp(owner.kind.data, self.value(owner.x)))
            if isinstance(owner, CastOp):
                return self._add(CastOp(self.value(owner.x), element_of(value)))
            if isinstance(owner, SliceOp):
                return self._add(self._slice(owner))
            if isinstance(owner, BinaryOp):
                return self._add(BinaryOp(owner.kind.data, *map(self.value, owner.operands)))
        array, there = constant_array(value), self._already(value)
        if _is_scalar(value) or there is not None:
            return value if there is None else there
        if array is not None:
            return self._add(ConstantOp.of(np.ascontiguousarray(array.transpose(self.permutation))))
        self.saved -= 1
        return self._add(TransposeOp(value, self.permutation))

    def _already(self, value: SSAValue) -> SSAValue | None:
        """The value turned so, where the model has that before the transpose."""
        turned = [user for user in users(value) if isinstance(user, TransposeOp)]
        alike = (t for t in turned if t.permutation == self.permutation)
        return next((t.result for t in alike if t.is_before_in_block(self.op)), None)

    def _undoes(self, op: TransposeOp) -> bool:
        return [op.permutation[axis] for axis in self.permutation] == sorted(self.permutation)

    def _slice(self, op: SliceOp) -> SliceOp:
        starts, extents = (
            [part[axis] for axis in self.permutation]
            for part in (op.starts.data, shape_of(op.result))
        )
        steps = [op.step_list[axis] for axis in self.permutation]
        return SliceOp(self.value(op.x), starts, extents, steps)

    def _add(self, op: Operation) -> SSAValue:
        self.made.append(op)
        return op.results[0]


def _is_scalar(value: SSAValue) -> bool:
    """Whether a value is one number, which stands beside any axes."""
    return constant_scalar(value) is not None and all(d.as_int() == 1 for d in shape_of(value))


def _same_rank(value: SSAValue, rank: int) -> bool:
    """Whether all that a value is made of elementwise has its rank, or is one number."""
    owner = value.owner
    if isinstance(owner, UnaryOp | CastOp | BinaryOp) and value.has_one_use():
        return all(_same_rank(v, rank) for v in owner.operands)
    return rank_of(value) == rank or _is_scalar(value)


def _cancel(op: TransposeOp, rewriter: PatternRewriter) -> None:
    inner = op.x.owner
    if not isinstance(inner, UnaryOp | CastOp | BinaryOp | SliceOp) or not op.x.has_one_use():
        return
    if not _same_rank(op.x, rank_of(op.x)):
        return
    turned = Turned(op)
    turned.value(op.x)
    if turned.saved > 0:
        substitute(rewriter, op, *turned.made)
        return
    for made in reversed(turned.made):
        made.erase()


@dataclass(frozen=True)
class CancelTransposes(ModulePass):
    """Removes transposes that undo one another."""

    name = "cancel-transposes"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites to a fixpoint."""
        rewrite(op, On(TransposeOp, _cancel), *SHAPE_PATTERNS)
