"""Ops of the `mllm` dialect that move elements as nodes of the standard."""

from __future__ import annotations

from typing import Final

import numpy as np
from xdsl.dialects.builtin import i64

from mllm_compiler.backends.onnx.builder import Builder, Value
from mllm_compiler.backends.onnx.entry import Inputs, one
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import (
    BroadcastOp,
    ConcatOp,
    IotaOp,
    PadOp,
    ReshapeOp,
    SliceOp,
    TransposeOp,
)
from mllm_compiler.dialects.types import element_of, shape_of

TO_THE_END: Final = np.iinfo(np.int64).max
TO_THE_START: Final = np.iinfo(np.int64).min


def _reshape(op: ReshapeOp, b: Builder, inputs: Inputs) -> Value:
    return b.reshape(inputs[0], shape_of(op.x), shape_of(op.result))


def _transpose(op: TransposeOp, b: Builder, inputs: Inputs) -> Value:
    return b.node("Transpose", *inputs, perm=op.permutation)


def _concat(op: ConcatOp, b: Builder, inputs: Inputs) -> Value:
    return b.node("Concat", *inputs, axis=op.axis.value.data)


def _slice(op: SliceOp, b: Builder, inputs: Inputs) -> Value:
    cuts = [
        (axis, start, _end(dim, start, extent, step), step)
        for axis, (dim, start, extent, step) in enumerate(
            zip(shape_of(op.x), op.starts.data, shape_of(op.result), op.step_list, strict=True)
        )
        if (start, extent, step) != (Dim(), dim, 1)
    ]
    if not cuts:
        return b.node("Identity", *inputs)
    axes, starts, ends, steps = zip(*cuts, strict=True)
    return b.node(
        "Slice", *inputs, b.dims(starts), b.dims(ends), b.integers(*axes), b.integers(*steps)
    )


def _end(dim: Dim, start: Dim, extent: Dim, step: int) -> Dim:
    """Where the standard ends a slice that takes so many elements."""
    end = start + extent * step
    if step > 0:
        return Dim.const(TO_THE_END) if step == 1 and end == dim else end
    return Dim.const(TO_THE_START) if end.as_int() == -1 else end


def _broadcast(op: BroadcastOp, b: Builder, inputs: Inputs) -> Value:
    return b.expand(inputs[0], shape_of(op.x), shape_of(op.result))


def count(b: Builder, start: Dim, extent: Dim, step: int = 1) -> Value:
    """The numbers start, start + step, ...: [extent] of i64."""
    sizes = [b.size(start), b.size(start + extent * step), b.size(step)]
    return b.once(("count", start, extent, step), lambda: b.node("Range", *sizes))


def _iota(op: IotaOp, b: Builder, inputs: Inputs) -> Value:
    element = element_of(op.result)
    numbers = count(b, op.start.data[0], shape_of(op.result)[0], op.step.value.data)
    return numbers if element == i64 else b.cast(numbers, element)


def _pad(op: PadOp, b: Builder, inputs: Inputs) -> Value:
    before, after = op.amounts
    value = b.scalar(op.value.value.data, element_of(op.x))
    return b.node("Pad", *inputs, b.integers(*before, *after), value)


EXPORTERS = dict(
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
"""Op class to exporter."""
