"""Rotary positions as operators of TFLite."""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import f32
from xdsl.ir import SSAValue

from mllm_compiler.dialects import mllm, tfl
from mllm_compiler.dialects.types import extents
from mllm_compiler.passes.folded_weights import numbers_of
from mllm_compiler.passes.lower_to_tfl.builder import Builder


def rope(op: mllm.RopeOp, b: Builder) -> SSAValue:
    """Pairs of each head times cosines and sines of position times frequency."""
    batch, tokens, width = extents(op.x)
    heads, (pairs,) = op.heads.value.data, extents(op.inv_freq)
    size = width // heads
    cos, sin = _turns(op, b)
    x = b.reshape(op.x, (batch, tokens, heads, size))
    turned, rest = x, list[SSAValue]()
    if 2 * pairs < size:
        turned = _channels(b, x, 0, 2 * pairs)
        rest = [_channels(b, x, 2 * pairs, size)]
    paired = bool(op.interleaved)
    if paired:
        turned = b.reshape(turned, (batch, tokens, heads * pairs, 2))
        first, second = (
            b.reshape(part, (batch, tokens, heads, pairs)) for part in b.split(turned, 2, 3)
        )
    else:
        first, second = b.split(turned, 2, 3)
    left = b.subtract(b.mul(first, cos), b.mul(second, sin))
    right = b.add(b.mul(second, cos), b.mul(first, sin))
    if paired:
        sides = [b.reshape(x, (batch, tokens, heads * pairs, 1)) for x in (left, right)]
        rotated = b.reshape(b.concat(sides, 3), (batch, tokens, heads, 2 * pairs))
    else:
        rotated = b.concat([left, right], 3)
    whole = b.concat([rotated, *rest], 3) if rest else rotated
    return b.reshape(whole, (batch, tokens, width))


def _turns(op: mllm.RopeOp, b: Builder) -> tuple[SSAValue, SSAValue]:
    """Cosines and sines of positions times frequencies, [B, T, 1, pairs]."""
    if not (b.takes(tfl.CosOp) and b.takes(tfl.SinOp)):
        return _looked_up(op, b, np.cos), _looked_up(op, b, np.sin)
    (batch, tokens), (pairs,) = extents(op.positions), extents(op.inv_freq)
    at = b.reshape(b.cast(op.positions, f32), (batch, tokens, 1, 1))
    angles = b.mul(at, b.reshape(op.inv_freq, (1, 1, 1, pairs)))
    return b.unary(tfl.CosOp, angles), b.unary(tfl.SinOp, angles)


def _looked_up(op: mllm.RopeOp, b: Builder, function: np.ufunc) -> SSAValue:
    """Rows of a table of cosines or sines; once for all that read them."""

    def make() -> SSAValue:
        frequencies = numbers_of(op.inv_freq, b.store)
        assert frequencies is not None
        angles = np.arange(b.positions, dtype=np.float32)[:, None, None] * frequencies
        table = b.constant(function(angles).astype(np.float32))
        dims = (*extents(op.positions), *extents(table)[1:])
        at = b.indices(op.positions)
        return b.call(tfl.GatherOp, [table, at], dims, axis=0, batch_dims=0)

    return b.once((function.__name__, op.positions, op.inv_freq), make)


def _channels(b: Builder, x: SSAValue, begin: int, end: int) -> SSAValue:
    """Some of the last axis."""
    dims = extents(x)
    starts, ends = [0] * len(dims), list(dims)
    starts[-1], ends[-1] = begin, end
    sides = [b.whole(s) for s in (starts, ends, [1] * len(dims))]
    return b.call(tfl.StridedSliceOp, [x, *sides], (*dims[:-1], end - begin))
