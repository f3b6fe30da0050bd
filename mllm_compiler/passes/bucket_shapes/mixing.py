"""Padded forms of ops that mix the elements of an axis: padding is made neutral before."""

from __future__ import annotations

from typing import Any, Final, cast

import ml_dtypes
import numpy as np
from xdsl.ir import Attribute, Operation, SSAValue

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import BinaryKind, PoolKind, ReduceKind, UnaryKind
from mllm_compiler.dialects.types import dtype_of, element_of, is_float, shape_of
from mllm_compiler.passes.bucket_shapes.padded import Padded
from mllm_compiler.passes.bucket_shapes.rows import rows, static

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
    axes, kind = op.axis_list, op.kind.data
    if not any(p.dims(op.x)[axis].symbols() for axis in axes):
        return
    if kind is ReduceKind.MEAN:
        p.replace(op, _mean(op, p, op.x, axes, keepdims=bool(op.keepdims.value.data)))
        return
    number = reached(NEUTRAL.get(kind, 0.0), element_of(op.x))
    op.operands[0] = p.filled(op.x, number, op, axes)


def cumsum(op: mllm.CumsumOp, p: Padded) -> None:
    """Padding adds nothing."""
    op.operands[0] = p.filled(op.x, 0, op, (op.axis.value.data,))


def selective_scan(op: mllm.SelectiveScanOp, p: Padded) -> None:
    """A step of no width leaves the states as they are."""
    tokens = {p.dims(v)[1] for v in (op.x, op.step, op.b, op.c)}
    if len(tokens) > 1:
        raise p.refusal(op, "its operands may pad differently")
    for value in (op.x, op.b):
        static(op, p, p.dims(value)[2:])
    op.operands[1] = p.filled(op.step, 0, op, (1,))


def _mean(
    op: Operation, p: Padded, x: SSAValue, axes: tuple[int, ...], *, keepdims: bool
) -> SSAValue:
    element, count = element_of(x), Dim.const(1)
    if not is_float(element):
        raise p.refusal(op, "the mean of integers")
    for axis in axes:
        count = count * p.dims(x)[axis]
    real = p.filled(x, 0, op, axes)
    total = p.insert(mllm.ReduceOp(ReduceKind.SUM, real, axes, keepdims=keepdims), op)
    divisor = p.insert(mllm.CastOp(p.length(count), element), op)
    if not shape_of(total):
        divisor = p.insert(mllm.ReshapeOp(divisor, ()), op)
    return p.insert(mllm.BinaryOp(BinaryKind.DIV, total, divisor), op)


def layer_norm(op: mllm.LayerNormOp, p: Padded) -> None:
    """Mean and variance are those of the real elements."""
    dims, element = p.dims(op.x), element_of(op.x)
    if not dims[-1].symbols():
        rows(op, p)
        return
    if op.weight is not None or op.bias is not None:
        raise p.refusal(op, f"it scales the elements along {dims[-1]}")
    last = (len(dims) - 1,)
    mean = _mean(op, p, op.x, last, keepdims=True)
    centred = p.put(mllm.BinaryOp(BinaryKind.SUB, op.x, mean), op, dims)
    squares = p.put(mllm.BinaryOp(BinaryKind.MUL, centred, centred), op, dims)
    variance = _mean(op, p, squares, last, keepdims=True)
    epsilon = p.scalar(op.epsilon.value.data, element)
    safe = p.insert(mllm.BinaryOp(BinaryKind.ADD, variance, epsilon), op)
    scale = p.insert(mllm.UnaryOp(UnaryKind.RSQRT, safe), op)
    p.replace(op, p.insert(mllm.BinaryOp(BinaryKind.MUL, centred, scale), op))


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
