"""Rotary positions as operators of QNN; angles of far positions have no room in halves."""

from __future__ import annotations

import numpy as np
from xdsl.ir import SSAValue

from mllm_compiler.dialects import mllm, qnn
from mllm_compiler.dialects.types import extents
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.folded_weights import numbers_of
from mllm_compiler.passes.graphs import location_of
from mllm_compiler.passes.lower_to_qnn.builder import Builder
from mllm_compiler.passes.lowered_attention import merge_heads, split_heads


def rope(op: mllm.RopeOp, b: Builder) -> SSAValue:
    """Each head turned by cosines and sines that are looked up by position."""
    heads, (pairs,) = op.heads.value.data, extents(op.inv_freq)
    x = split_heads(b, op.x, heads)
    size = extents(x)[3]
    turned = x if 2 * pairs == size else b.slice(x, 3, 0, 2 * pairs)
    cos, sin = (_looked_up(op, b, kind) for kind in (np.cos, np.sin))
    made = b.call(
        qnn.RotaryEmbeddingOp,
        [turned, cos, sin],
        extents(turned),
        interleaved=bool(op.interleaved),
    )
    if 2 * pairs < size:
        made = b.concat([made, b.slice(x, 3, 2 * pairs, size)], 3)
    return merge_heads(b, made)


def _looked_up(op: mllm.RopeOp, b: Builder, kind: np.ufunc) -> SSAValue:
    """Cosines or sines of positions, [B, T, pairs]."""
    frequencies = numbers_of(op.inv_freq, b.store)
    if frequencies is None:
        raise CompileError(
            "MLC-R001",
            f"'{op.name}' has no home on 'qnn': its frequencies are computed",
            location=location_of(op),
            remedy="use the target c, or export the model with fixed frequencies",
        )
    angles = np.arange(b.positions, dtype=np.float32)[:, None] * frequencies
    table = b.constant(kind(angles).astype(np.float32))
    found = b.gather(table, op.positions, 0)
    return b.tile(found, (extents(op.x)[0], *extents(found)[1:]))
