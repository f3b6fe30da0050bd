"""What the cosines and sines of a rotation are made from: angles in the graph, or look-up tables.

A table of cosines or sines ends in [T, R/2], or in [T, R] where each column stands twice: as two
halves or as pairs. It is `cos` and `sin` of positions times frequencies, or rows of two weights
that hold those for the positions 0, 1, ...; the frequencies are then read back from the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import (
    BinaryKind,
    BroadcastOp,
    ConcatOp,
    EmbeddingOp,
    GatherOp,
    ReshapeOp,
    SliceOp,
    UnaryKind,
    UnaryOp,
    WeightOp,
    constant_array,
)
from mllm_compiler.dialects.types import element_of, is_integer, rank_of, shape_of
from mllm_compiler.passes.matching import binary, made_by, peel, transposed
from mllm_compiler.weights import WeightStore

TABLE_TOLERANCE = 2e-5
"""How far a table may be from the cosines and sines of its angles."""

Floats = NDArray[np.float64]
Count = tuple[Dim, Dim]
"""Positions start, start + 1, ...: the start and how many."""


@dataclass(frozen=True)
class Angles:
    """Positions times frequencies.

    Attributes:
        positions: Integers [B, T], [1, T] or [T], or those that are counted.
        inv_freq: [R/2], or that with extents of 1 around; an array where it was read back.
    """

    positions: SSAValue | Count
    inv_freq: SSAValue | NDArray[np.float32]


@dataclass(frozen=True)
class Table:
    """A table of cosines or sines.

    Attributes:
        lead: All dims of its rows but the last, [T] or [B, T].
        twice: How each column stands twice; None where it stands once.
        kind: cos or sin; None for rows of a weight, which do not say.
        angles: What it is computed from.
        rows: The weight, and which of its rows.
    """

    lead: tuple[Dim, ...]
    twice: str | None
    kind: UnaryKind | None = None
    angles: Angles | None = None
    rows: tuple[SSAValue, SSAValue | Count] | None = None


def read_table(value: SSAValue) -> Table | None:
    """The table that a value is, with extents of 1 inserted into its rows."""
    value = _same_rows(value)
    single = _once(value)
    if single is not None:
        inner = read_table(single[0])
        fits = inner is not None and inner.twice is None
        return replace(inner, twice=single[1]) if inner is not None and fits else None
    wave = made_by(value, UnaryOp)
    if wave is not None and wave.kind.data in (UnaryKind.COS, UnaryKind.SIN):
        return _computed(wave)
    return _looked_up(value)


def _same_rows(value: SSAValue) -> SSAValue:
    """What a value is a reshape of that keeps its last dim."""
    while (op := made_by(value, ReshapeOp)) is not None:
        if not rank_of(op.x) or not rank_of(value) or shape_of(op.x)[-1] != shape_of(value)[-1]:
            break
        value = op.x
    return value


def _once(value: SSAValue) -> tuple[SSAValue, str] | None:
    """What a value has each column of twice, and how."""
    op = made_by(value, ConcatOp)
    if op is not None and len(op.xs) == 2 and op.xs[0] is op.xs[1]:
        return (op.xs[0], "halves") if op.axis.value.data == rank_of(value) - 1 else None
    flat = made_by(value, ReshapeOp)
    if flat is None or rank_of(flat.x) < 2 or shape_of(flat.x)[-1] != Dim.const(2):
        return None
    if shape_of(flat.x)[-2] * 2 != shape_of(value)[-1]:
        return None
    joined, wide = made_by(flat.x, ConcatOp), made_by(flat.x, BroadcastOp)
    if joined is not None and (len(joined.xs) != 2 or joined.xs[0] is not joined.xs[1]):
        return None
    column = joined.xs[0] if joined is not None else wide.x if wide is not None else None
    apart = made_by(column, ReshapeOp) if column is not None else None
    if apart is None or shape_of(apart.result) != (*shape_of(apart.x), Dim.const(1)):
        return None
    return apart.x, "pairs"


def _computed(wave: UnaryOp) -> Table | None:
    """The cosines or sines of angles in the graph."""
    single = _once(_same_rows(wave.x))
    angles = _same_rows(wave.x) if single is None else _same_rows(single[0])
    found = _outer(angles)
    if found is None:
        return None
    twice = None if single is None else single[1]
    return Table(shape_of(angles)[:-1], twice, kind=wave.kind.data, angles=found)


def _outer(value: SSAValue) -> Angles | None:
    """What the value [B, T, R/2] or [T, R/2] is the outer product of."""
    inner, perm = transposed(value)
    pair, rank = binary(inner, BinaryKind.MUL), rank_of(inner)
    swapped = (*range(rank - 2), rank - 1, rank - 2)
    if pair is None or rank not in (2, 3) or perm not in (tuple(range(rank)), swapped):
        return None
    token_axis = rank - 1 if perm == swapped else rank - 2
    for steps, frequencies in (pair, pair[::-1]):
        positions, inv_freq = peel(steps), peel(frequencies)
        wide = [d for d in shape_of(inv_freq) if d.as_int() != 1]
        if not is_integer(element_of(positions)) or len(wide) > 1:
            continue
        other_axis = 2 * rank - 3 - token_axis
        if _is_flat_along(steps, other_axis, rank) and _is_flat_along(
            frequencies, token_axis, rank
        ):
            return Angles(positions, inv_freq)
    return None


def _is_flat_along(value: SSAValue, axis: int, rank: int) -> bool:
    """Whether a factor has extent 1 along an axis of the product."""
    dims = (*[Dim.const(1)] * (rank - rank_of(value)), *shape_of(value))
    return dims[axis].as_int() == 1


def _is_weight(value: SSAValue) -> bool:
    constant = isinstance(value.owner, WeightOp) or constant_array(value) is not None
    return constant and rank_of(value) == 2


def _looked_up(value: SSAValue) -> Table | None:
    """Rows of a weight [M, R] or [M, R/2]."""
    picked = value.owner
    if isinstance(picked, EmbeddingOp) and _is_weight(picked.table):
        return Table(shape_of(value)[:-1], None, rows=(picked.table, picked.ids))
    if isinstance(picked, GatherOp) and _is_weight(picked.x) and picked.axis.value.data == 0:
        return Table(shape_of(value)[:-1], None, rows=(picked.x, picked.indices))
    cut = _row_slice(value)
    if cut is not None:
        return Table(shape_of(value)[:-1], None, rows=cut)
    if _is_weight(value):
        return Table(shape_of(value)[:-1], None, rows=(value, (Dim(), shape_of(value)[0])))
    return None


def _row_slice(value: SSAValue) -> tuple[SSAValue, Count] | None:
    """A weight and the rows that a slice takes in turn."""
    op = made_by(value, SliceOp)
    if op is None or not _is_weight(op.x) or set(op.step_list) != {1}:
        return None
    if op.starts.data[1].as_int() != 0 or shape_of(value)[1] != shape_of(op.x)[1]:
        return None
    return op.x, (op.starts.data[0], shape_of(value)[0])


def angles_of(cos: Table, sin: Table, store: WeightStore) -> tuple[Angles, str | None] | None:
    """The angles of which two tables are cosines and sines, and how their columns stand twice."""
    if cos.lead != sin.lead or cos.twice != sin.twice:
        return None
    if cos.angles is not None and sin.angles is not None:
        waves = (cos.kind, sin.kind) == (UnaryKind.COS, UnaryKind.SIN)
        return (cos.angles, cos.twice) if waves and cos.angles == sin.angles else None
    if cos.rows is None or sin.rows is None or cos.rows[1] != sin.rows[1]:
        return None
    tables = [_array(value, store) for value in (cos.rows[0], sin.rows[0])]
    if tables[0] is None or tables[1] is None or tables[0].shape != tables[1].shape:
        return None
    return _read_back(tables[0], tables[1], cos.rows[1], cos.twice)


def _array(value: SSAValue, store: WeightStore) -> Floats | None:
    weight = made_by(value, WeightOp)
    if weight is None:
        constant = constant_array(value)
        return None if constant is None else constant.astype(np.float64)
    blob = weight.value
    if blob.digest.data not in store:
        return None
    array = store.array(blob.digest.data, str(blob.element), blob.dims)
    return array.astype(np.float64)


_TWICE: tuple[tuple[str, Callable[[Floats], tuple[Floats, Floats]]], ...] = (
    ("halves", lambda t: (t[:, : t.shape[1] // 2], t[:, t.shape[1] // 2 :])),
    ("pairs", lambda t: (t[:, 0::2], t[:, 1::2])),
)


def _read_back(
    cos: Floats, sin: Floats, positions: SSAValue | Count, twice: str | None
) -> tuple[Angles, str | None] | None:
    """The angles of two weights, each of whose columns may stand twice."""
    if twice is None and cos.shape[1] % 2 == 0:
        for name, split in _TWICE:
            pairs = split(cos), split(sin)
            if all(np.array_equal(a, b) for a, b in pairs) and cos.shape[1] > 2:
                cos, sin, twice = pairs[0][0], pairs[1][0], name
                break
    found = frequencies(cos, sin)
    return None if found is None else (Angles(positions, found), twice)


def frequencies(cos: Floats, sin: Floats) -> NDArray[np.float32] | None:
    """f, where row p of the tables is the cosine and the sine of p f; None where there is none.

    Row 1 says f up to its rounding; rows 2, 4, 8, ... halve what is uncertain each.
    """
    if len(cos) < 2:
        return None
    found: Floats = np.arctan2(sin[1], cos[1])
    row = 2
    while row < len(cos):
        rest: Floats = np.arctan2(sin[row], cos[row]) - row * found
        turns: Floats = np.round(rest / (2 * np.pi))
        found = found + (rest - 2 * np.pi * turns) / row
        row *= 2
    exact = found.astype(np.float32)
    angles = np.arange(len(cos), dtype=np.float32)[:, None] * exact
    near = np.allclose(np.cos(angles), cos, rtol=0, atol=TABLE_TOLERANCE)
    near &= np.allclose(np.sin(angles), sin, rtol=0, atol=TABLE_TOLERANCE)
    return exact if near else None
