"""Meanings of the ops of the `mllm` dialect that move elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mllm_compiler.dialects.dims import dims_of
from mllm_compiler.dialects.mllm import (
    BroadcastOp,
    ConcatOp,
    IotaOp,
    PadOp,
    ReshapeOp,
    SliceOp,
    TransposeOp,
)
from mllm_compiler.dialects.types import dtype_of, element_of, shape_of, tensor_type
from mllm_compiler.reference.entry import one
from mllm_compiler.reference.executor import Array, Frame, Meaning


def _reshape(op: ReshapeOp, operands: Sequence[Array], frame: Frame) -> Array:
    dims = dims_of(tensor_type(op.result))
    unknown = [i for i, d in enumerate(dims) if d.unknown]
    shape = [-1 if d.unknown else frame.size(d) for d in dims]
    if len(unknown) == 1 and operands[0].size == 0:
        shape[unknown[0]] = 0
    return operands[0].reshape(shape)


def _transpose(op: TransposeOp, operands: Sequence[Array], frame: Frame) -> Array:
    return np.ascontiguousarray(operands[0].transpose(op.permutation))


def _concat(op: ConcatOp, operands: Sequence[Array], frame: Frame) -> Array:
    return np.concatenate(list(operands), axis=op.axis.value.data)


def _slice(op: SliceOp, operands: Sequence[Array], frame: Frame) -> Array:
    cuts: list[slice] = []
    for start, step, extent in zip(op.starts.data, op.step_list, shape_of(op.result), strict=True):
        first, count = frame.size(start), frame.size(extent)
        last = first + (count - 1) * step
        end = last + (1 if step > 0 else -1)
        cuts.append(slice(first, None if end < 0 else end, step) if count else slice(0, 0))
    return operands[0][tuple(cuts)]


def _broadcast(op: BroadcastOp, operands: Sequence[Array], frame: Frame) -> Array:
    return np.broadcast_to(operands[0], frame.shape(tensor_type(op.result)))


def _iota(op: IotaOp, operands: Sequence[Array], frame: Frame) -> Array:
    (count,) = frame.shape(tensor_type(op.result))
    start, step = frame.size(op.start.data[0]), op.step.value.data
    return (start + step * np.arange(count)).astype(dtype_of(element_of(op.result)))


def _pad(op: PadOp, operands: Sequence[Array], frame: Frame) -> Array:
    x, (before, after) = operands[0], op.amounts
    cut = [
        slice(max(0, -b), n - max(0, -a)) for b, a, n in zip(before, after, x.shape, strict=True)
    ]
    grown = [(max(0, b), max(0, a)) for b, a in zip(before, after, strict=True)]
    value = x.dtype.type(op.value.value.data)
    return np.pad(x[tuple(cut)], grown, constant_values=value)


MEANINGS: dict[str, Meaning] = dict(
    [
        one(ReshapeOp, _reshape),
        one(TransposeOp, _transpose),
        one(ConcatOp, _concat),
        one(SliceOp, _slice),
        one(BroadcastOp, _broadcast),
        one(IotaOp, _iota),
        one(PadOp, _pad),
    ]
)
"""Op name to meaning."""
