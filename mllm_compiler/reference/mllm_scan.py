"""Meanings of `mllm` ops that carry something along an axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mllm_compiler.dialects.mllm import CumsumOp, SelectiveScanOp
from mllm_compiler.reference.entry import one, several
from mllm_compiler.reference.executor import Array, Frame, Meaning
from mllm_compiler.reference.mllm_linear import wide


def cumsum(x: Array, axis: int, *, exclusive: bool, reverse: bool) -> Array:
    """All elements up to each one, summed in the type of x."""
    x = np.flip(x, axis) if reverse else x
    if exclusive:
        shift = [(int(a == axis), 0) for a in range(x.ndim)]
        x = np.pad(x, shift).take(range(x.shape[axis]), axis)
    y = np.cumsum(x, axis, dtype=x.dtype)
    return np.ascontiguousarray(np.flip(y, axis) if reverse else y)


def selective_scan(
    x: Array, step: Array, a: Array, b: Array, c: Array, state: Array
) -> tuple[Array, Array]:
    """The read states of each token, and the states behind the last one."""
    y = np.empty_like(x)
    for t in range(x.shape[1]):
        width = step[:, t, :, None]
        state = np.exp(width * a) * state + width * b[:, t, None, :] * x[:, t, :, None]
        y[:, t] = (state * c[:, t, None, :]).sum(-1)
    return y, state


def _cumsum(op: CumsumOp, operands: Sequence[Array], frame: Frame) -> Array:
    flags = {"exclusive": bool(op.exclusive), "reverse": bool(op.reverse)}
    return cumsum(operands[0], op.axis.value.data, **flags)


def _selective_scan(
    op: SelectiveScanOp, operands: Sequence[Array], frame: Frame
) -> Sequence[Array]:
    made = selective_scan(*(wide(v) for v in operands))
    return [v.astype(operands[0].dtype, copy=False) for v in made]


MEANINGS: dict[str, Meaning] = dict(
    [one(CumsumOp, _cumsum), several(SelectiveScanOp, _selective_scan)]
)
"""Op name to meaning."""
