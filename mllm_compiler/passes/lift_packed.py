"""`lift-packed`: a product whose columns are taken apart becomes a product for each part; exact.

    %0 = mllm.linear %x, %w, %b : (tensor<2x8xf32>, tensor<48x8xf32>, tensor<48xf32>) -> ...
    %q = mllm.slice %0 {starts = #mllm.dims<"0", "0">, ...} : (tensor<2x48xf32>) -> tensor<2x32xf32>
    %k = mllm.slice %0 {starts = #mllm.dims<"0", "32">, ...} : (...) -> tensor<2x16xf32>

becomes, where nothing else reads %0,

    %q = mllm.linear %x, %w[0:32], %b[0:32] : (...) -> tensor<2x32xf32>
    %k = mllm.linear %x, %w[32:48], %b[32:48] : (...) -> tensor<2x16xf32>

So queries, keys and values, or the two products of a gated block, that a model computes at once are
recognised as those that it computes one by one. The columns may be apart by a reshape,
[B, T, 3*H*D] as [B, T, 3, H, D] or [B, T, H, 3, D], and transposed. The channels of a head, the
last of several axes, are left together where they are cut in two: rotary positions do that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from mllm_compiler.dialects import store_of
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import (
    BlobAttr,
    ConstantOp,
    LinearOp,
    ReshapeOp,
    SliceOp,
    TransposeOp,
    WeightOp,
    constant_array,
)
from mllm_compiler.dialects.types import shape_of
from mllm_compiler.passes.canonical_form import SHAPE_PATTERNS
from mllm_compiler.passes.matching import made_by
from mllm_compiler.passes.pack_weights import CHUNK
from mllm_compiler.passes.rewrite import On, rewrite, substitute
from mllm_compiler.weights import WeightStore

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Cut:
    """What a slice takes.

    Attributes:
        dims: Of what is cut.
        starts: The first place along each axis.
        extents: How many.
        steps: Between places.
    """

    dims: tuple[Dim, ...]
    starts: tuple[Dim, ...]
    extents: tuple[Dim, ...]
    steps: tuple[int, ...]

    @staticmethod
    def of(op: SliceOp) -> Cut:
        """What an op takes."""
        return Cut(shape_of(op.x), op.starts.data, shape_of(op.result), op.step_list)

    def before(self, permutation: Sequence[int]) -> Cut:
        """The same before a transpose."""
        axes = [permutation.index(axis) for axis in range(len(permutation))]
        dims, starts, extents = (
            tuple(part[a] for a in axes) for part in (self.dims, self.starts, self.extents)
        )
        return Cut(dims, starts, extents, tuple(self.steps[a] for a in axes))


def _before_transpose(op: TransposeOp, rewriter: PatternRewriter) -> None:
    """Where the columns of a product are transposed and then cut, they are cut first."""
    users = [use.operation for use in op.result.uses]
    slices = [user for user in users if isinstance(user, SliceOp)]
    reshape = made_by(op.x, ReshapeOp)
    linear = made_by(reshape.x, LinearOp) if reshape is not None else None
    if linear is None or len(slices) < 2 or len(slices) != len(users):
        return
    cuts = [Cut.of(late).before(op.permutation) for late in slices]
    if any(_rows(linear, cut) is None for cut in cuts):
        return
    for late, cut in zip(slices, cuts, strict=True):
        early = SliceOp(op.x, cut.starts, cut.extents, cut.steps)
        substitute(rewriter, late, early, TransposeOp(early.result, op.permutation))


def _packed(store: WeightStore, op: LinearOp, rewriter: PatternRewriter) -> None:
    cuts = _cuts(op)
    rows = [_rows(op, Cut.of(cut)) for cut in cuts]
    known = [r for r in rows if r is not None]
    if len(known) < 2 or len(known) != len(rows) or not _apart(known):
        return
    if not all(_may_be_cut(store, v, r) for v in op.operands[1:] for r in known):
        return
    for cut, chosen in zip(cuts, known, strict=True):
        parts = [_part(store, v, chosen) for v in (op.weight, op.bias) if v is not None]
        operands = [part.results[0] for part in parts]
        one = LinearOp(op.x, operands[0], operands[1] if len(operands) == 2 else None)
        substitute(rewriter, cut, *parts, one, ReshapeOp(one.result, shape_of(cut.result)))


def _cuts(op: LinearOp) -> list[SliceOp]:
    """The slices that are all that reads a product, or one reshape of it."""
    users = [use.operation for use in op.result.uses]
    if len(users) == 1 and isinstance(users[0], ReshapeOp):
        users = [use.operation for use in users[0].result.uses]
    cuts = [user for user in users if isinstance(user, SliceOp)]
    return cuts if len(cuts) == len(users) else []


def _rows(op: LinearOp, cut: Cut) -> Rows | None:
    """The rows of the weight that a slice takes; None where it takes anything but columns."""
    width = shape_of(op.weight)[0].as_int()
    columns = _columns(cut.dims, width)
    if width is None or columns is None or set(cut.steps) != {1}:
        return None
    first = len(cut.dims) - len(columns)
    if cut.dims[:first] != cut.extents[:first]:
        return None
    starts, extents = ([d.as_int() for d in part[first:]] for part in (cut.starts, cut.extents))
    if None in starts or None in extents or _cuts_heads(columns, extents):
        return None
    grid = np.arange(width, dtype=np.int64).reshape(columns)
    chosen = (slice(s, s + (n or 0)) for s, n in zip(starts, extents, strict=True) if s is not None)
    return grid[tuple(chosen)].reshape(-1)


def _columns(dims: Sequence[Dim], width: int | None) -> list[int] | None:
    """The last extents, as many as make up the columns of a product."""
    columns: list[int] = []
    for dim in reversed(dims):
        size = dim.as_int()
        if size is None or prod(columns) == width:
            break
        columns.insert(0, size)
    return columns if columns and prod(columns) == width else None


def _cuts_heads(columns: Sequence[int], extents: Sequence[int | None]) -> bool:
    """Whether the channels of each head, the last axis of several, are cut into less than three."""
    channels = extents[-1] or 0
    return len(columns) > 1 and channels * 3 > columns[-1] and channels != columns[-1]


def _apart(rows: Sequence[Rows]) -> bool:
    """Whether no row is taken twice."""
    together = np.concatenate(rows)
    return len(np.unique(together)) == len(together)


def _may_be_cut(store: WeightStore, value: SSAValue, rows: Rows) -> bool:
    """Whether rows can be taken: any of a weight or a constant, a run of another value."""
    weight = made_by(value, WeightOp)
    known = weight is not None and weight.value.digest.data in store
    return known or constant_array(value) is not None or bool((np.diff(rows) == 1).all())


def _part(store: WeightStore, value: SSAValue, rows: Rows) -> Operation:
    """Some rows of a weight or a bias."""
    weight, constant = made_by(value, WeightOp), constant_array(value)
    if constant is not None:
        return ConstantOp.of(constant[rows])
    if weight is None or weight.value.digest.data not in store:
        rest = shape_of(value)[1:]
        return SliceOp(value, [int(rows[0]), *[0] * len(rest)], [len(rows), *rest])
    blob = weight.value
    whole = store.array(blob.digest.data, str(blob.element), blob.dims)
    step = max(1, CHUNK * len(whole) // max(1, whole.nbytes))
    digest = store.add_pieces(whole[rows[at : at + step]] for at in range(0, len(rows), step))
    store.release()
    part = BlobAttr.of(digest, blob.element, (len(rows), *blob.dims[1:]))
    name = weight.weight_name.data if weight.weight_name is not None else None
    return WeightOp(part, None if name is None else f"{name}[{rows[0]}:{rows[-1] + 1}]")


@dataclass(frozen=True)
class LiftPacked(ModulePass):
    """Takes products that are several at once apart."""

    name = "lift-packed"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites to a fixpoint."""
        store = store_of(ctx)
        packed = On(LinearOp, lambda op, rewriter: _packed(store, op, rewriter))
        rewrite(op, On(TransposeOp, _before_transpose), packed, *SHAPE_PATTERNS)
