"""Padded forms of ops that mix the elements of an axis: padding is made neutral before."""

from __future__ import annotations

from typing import Any, Final, cast

import ml_dtypes
import numpy as np
from xdsl.ir import Attribute

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import BinaryKind, PoolKind, ReduceKind
from mllm_compiler.dialects.types import dtype_of, element_of, is_float, shape_of
from mllm_compiler.passes.bucket_shapes.padded import Padded
from mllm_compiler.passes.bucket_shapes.rows import static

NEUTRAL: Final = {
    ReduceKind.MAX: -np.inf,
    ReduceKind.MIN: np.inf,
    ReduceKind.LOG_SUM_EXP: -np.inf,
    ReduceKind.PROD: 1.0,
}
"""What padding is before a reduction; infinite: as far as the element type goes; else 0."""


def softmax(op: mllm.SoftmaxOp, p: Padded) -> None:
    """Padding has no weight."""
    lowest = reached(-np.inf, element_of(op.x))
    op.operands[0] = p.filled(op.x, lowest, op, (op.axis.value.data,))


def reduce(op: mllm.ReduceOp, p: Padded) -> None:
    """Padding is neutral; a mean divides by the real number of elements."""
    axes, kind, element = op.axis_list, op.kind.data, element_of(op.x)
    mixed = [p.dims(op.x)[axis] for axis in axes if p.dims(op.x)[axis].symbols()]
    if not mixed:
        return
    number = reached(NEUTRAL.get(kind, 0.0), element)
    op.operands[0] = p.filled(op.x, number, op, axes)
    if kind is not ReduceKind.MEAN:
        return
    if not is_float(element):
        raise p.refusal(op, "the mean of integers")
    total = mllm.ReduceOp(ReduceKind.SUM, op.x, axes, keepdims=bool(op.keepdims.value.data))
    count = Dim.const(1)
    for axis in axes:
        count = count * p.dims(op.x)[axis]
    summed = p.insert(total, op)
    divisor = p.insert(mllm.CastOp(p.length(count), element), op)
    if not shape_of(summed):
        divisor = p.insert(mllm.ReshapeOp(divisor, ()), op)
    p.replace(op, p.insert(mllm.BinaryOp(BinaryKind.DIV, summed, divisor), op))


def reached(number: float, element: Attribute) -> float:
    """A number, or what an element type has nearest to an infinite one."""
    if np.isfinite(number):
        return number
    limits = cast("Any", ml_dtypes.finfo if is_float(element) else ml_dtypes.iinfo)
    limit = limits(dtype_of(element))
    return float(limit.max if number > 0 else limit.min)


def matmul(op: mllm.MatmulOp, p: Padded) -> None:
    """Products over padding are 0."""
    a, b = p.dims(op.a), p.dims(op.b)
    if a[-1] != b[-2]:
        raise p.refusal(op, f"extents {a[-1]} and {b[-2]} may pad differently")
    for dims in (a, b):
        for dim, met in zip(reversed(dims[:-2]), reversed(p.dims(op.result)[:-2]), strict=False):
            if dim != met and dim.as_int() != 1:
                raise p.refusal(op, f"extents {dim} and {met} may pad differently")
    op.operands[0] = p.filled(op.a, 0, op, (len(a) - 1,))


def conv(op: mllm.ConvOp, p: Padded) -> None:
    """A window over the end of an image reads zeros, as it does without padding."""
    _, pads, _ = op.window
    static(op, p, (p.dims(op.x)[1], *p.dims(op.weight)))
    op.operands[0] = p.filled(op.x, 0, op, _ends(op, p, pads))


def pool(op: mllm.PoolOp, p: Padded) -> None:
    """A maximum over the end of an image reads the lowest number, an average nothing."""
    _, _, pads = op.window
    static(op, p, p.dims(op.x)[1:2])
    axes = _ends(op, p, pads)
    if op.kind.data is PoolKind.MAX:
        op.operands[0] = p.filled(op.x, reached(-np.inf, element_of(op.x)), op, axes)
        return
    if axes and not op.count_include_pad.value.data:
        raise p.refusal(op, "an average over the end counts fewer elements")
    op.operands[0] = p.filled(op.x, 0, op, axes)


def _ends(op: mllm.ConvOp | mllm.PoolOp, p: Padded, pads: tuple[int, ...]) -> tuple[int, ...]:
    """The axes along which a window of a real result reaches over the real end."""
    dims = p.dims(op.x)
    for dim in dims[2:]:
        if p.offset(dim) != Dim():
            raise p.refusal(op, f"padding stands before the elements along {dim}")
    count = len(dims) - 2
    return tuple(axis for axis in range(2, len(dims)) if pads[count + axis - 2] > 0)


def top_k(op: mllm.TopKOp, p: Padded) -> None:
    """Padding is chosen last."""
    axis = op.axis.value.data
    dim = p.dims(op.x)[axis]
    if p.offset(dim) != Dim() or p.dims(op.values)[axis].symbols():
        raise p.refusal(op, f"it counts along {dim}")
    furthest = np.inf if op.smallest.value.data else -np.inf
    op.operands[0] = p.filled(op.x, reached(furthest, element_of(op.x)), op, (axis,))
