"""Which tokens to keep: scores, a cover of the image, and an exact choice of the best.

    %s = mllm.token_importance %q, %k : [B, prefix + N]
    %p = mllm.slice %s : [B, N]
    %c = ... the best token of each cell of the cover gets the largest number
    %_, %i = mllm.top_k %c {by_index} : [B, K]
    %r = mllm.concat 0 .. prefix - 1, %i + prefix : [B, prefix + K]

Equal scores are taken in the order of their positions, and kept tokens stay in theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import f16, i64
from xdsl.ir import Attribute, Operation, SSAValue

from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import (
    AttentionOp,
    BinaryKind,
    BinaryOp,
    BroadcastOp,
    CastOp,
    CompareKind,
    CompareOp,
    ConcatOp,
    ConstantOp,
    IotaOp,
    LinearOp,
    ReduceKind,
    ReduceOp,
    ReshapeOp,
    SelectOp,
    SliceOp,
    TokenImportanceOp,
    TopKOp,
)
from mllm_compiler.dialects.types import dtype_of, element_of, shape_of
from mllm_compiler.passes.matching import is_close, made_by

Put = Callable[[Operation], SSAValue]
"""Inserts an op; the answer is its first result."""


@dataclass(frozen=True)
class Cover:
    """Cells that tile the image, each of which keeps a token.

    Attributes:
        cells: The cell of each patch, [1, N, 1] or, where some were dropped, [B, N, 1], of i64.
        count: How many cells there are.
    """

    cells: SSAValue
    count: int


def cells_of(patches: int, side: int) -> NDArray[np.int64]:
    """The cell of each patch of a square image in a cover of side x side cells."""
    width = isqrt(patches)
    along = np.arange(width, dtype=np.int64) * np.int64(side) // np.int64(width)
    return (along[:, None] * side + along[None, :]).reshape(-1)


def by_attention(attention: AttentionOp, put: Put) -> SSAValue:
    """The attention that the first token pays each: [B, T]; only its own query is computed."""
    linear = made_by(attention.q, LinearOp)
    first = put(_first_row(attention.q if linear is None else linear.x))
    query = first if linear is None else put(LinearOp(first, linear.weight, linear.bias))
    width = shape_of(query)[2].as_int()
    assert width is not None
    usual = (width // attention.head_count) ** -0.5
    if not is_close(attention.scale_value, usual):
        factor = put(scalar(attention.scale_value / usual, element_of(query)))
        query = put(BinaryOp(BinaryKind.MUL, query, factor))
    return put(TokenImportanceOp(query, attention.k, heads=attention.head_count))


def even_grid(patches: int, keep: int) -> NDArray[np.float32]:
    """The score 1 of `keep` patches on an even grid of a square image, and 0 of the others.

    A budget that is no square has the largest one below it as a grid, and the rest spread evenly.
    """
    width, side = isqrt(patches), isqrt(keep)
    along = ((np.arange(side) + 0.5) * width / side).astype(np.int64)
    chosen = (along[:, None] * width + along[None, :]).reshape(-1)
    others = np.setdiff1d(np.arange(patches), chosen)
    more = others[np.linspace(0, len(others) - 1, keep - side * side).astype(np.int64)]
    scores = np.zeros(patches, np.float32)
    scores[chosen] = scores[more] = 1
    return scores


def by_norm(tokens: SSAValue, put: Put) -> SSAValue:
    """The length of each token's features: [B, T, D] -> [B, T]."""
    return put(ReduceOp(ReduceKind.L2, tokens, [2], keepdims=False))


def choose(
    scores: SSAValue, keep: Dim, prefix: int, cover: Cover | None, put: Put
) -> tuple[SSAValue, SSAValue]:
    """The patches to keep, [B, K] of i64, and the tokens, with the prefix before them."""
    batch, tokens = shape_of(scores)
    patches = put(SliceOp(scores, (0, prefix), (batch, tokens - prefix)))
    if cover is not None:
        patches = _covered(patches, cover, put)
    best = TopKOp(patches, keep, 1, by_index=True)
    put(best)
    if prefix == 0:
        return best.indices, best.indices
    behind = put(BinaryOp(BinaryKind.ADD, best.indices, put(scalar(prefix, i64))))
    row = put(ReshapeOp(put(IotaOp(prefix)), (1, prefix)))
    before = put(BroadcastOp(row, (batch, prefix)))
    return best.indices, put(ConcatOp([before, behind], 1))


def _covered(scores: SSAValue, cover: Cover, put: Put) -> SSAValue:
    """Scores in which the best of each cell has the largest number; an empty cell has none."""
    (batch, patches), element = shape_of(scores), element_of(scores)
    most = float(np.finfo(np.float16 if element == f16 else np.float32).max)
    cells = put(ReshapeOp(cover.cells, (shape_of(cover.cells)[0], 1, patches)))
    numbers = put(ReshapeOp(put(IotaOp(cover.count)), (1, cover.count, 1)))
    inside = put(CompareOp(CompareKind.EQ, cells, numbers))
    row = put(ReshapeOp(scores, (batch, 1, patches)))
    within = TopKOp(put(SelectOp(inside, row, put(scalar(-most, element)))), 1, 2)
    put(within)
    places = put(ReshapeOp(put(IotaOp(patches)), (1, 1, patches)))
    found = put(CompareOp(CompareKind.EQ, within.indices, places))
    won = put(CastOp(put(BinaryOp(BinaryKind.AND, found, inside)), element))
    wins = put(ReduceOp(ReduceKind.MAX, won, [1], keepdims=False))
    wins = put(CompareOp(CompareKind.GT, wins, put(scalar(0, element))))
    return put(SelectOp(wins, put(scalar(most, element)), scores))


def scalar(value: float, element: Attribute) -> ConstantOp:
    """A constant without axes."""
    return ConstantOp.of(np.asarray(value, dtype_of(element)))


def _first_row(tokens: SSAValue) -> SliceOp:
    batch, _, width = shape_of(tokens)
    return SliceOp(tokens, (0, 0, 0), (batch, 1, width))
