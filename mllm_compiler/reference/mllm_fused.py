"""Meanings of the fused ops of the `mllm` dialect: those of their parts, one after another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mllm_compiler.dialects.mllm import QkvOp
from mllm_compiler.dialects.types import tensor_type
from mllm_compiler.reference.entry import several
from mllm_compiler.reference.executor import Array, Frame, Meaning
from mllm_compiler.reference.mllm_attention import turned
from mllm_compiler.reference.mllm_linear import linear


def _qkv(op: QkvOp, operands: Sequence[Array], frame: Frame) -> Sequence[Array]:
    x, weight, *rest = operands
    bias = rest.pop(0) if op.bias is not None else None
    widths = [frame.shape(tensor_type(part))[2] for part in op.results]
    q, k, v = np.split(linear(x, weight, bias), np.cumsum(widths)[:2], axis=2)
    if rest:
        paired = bool(op.interleaved)
        q = turned(q, *rest, heads=op.head_count, interleaved=paired)
        k = turned(k, *rest, heads=op.kv_head_count, interleaved=paired)
    return [np.ascontiguousarray(part) for part in (q, k, v)]


MEANINGS: dict[str, Meaning] = dict([several(QkvOp, _qkv)])
"""Op name to meaning."""
