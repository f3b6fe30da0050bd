"""Shapes and contents of operators that work element by element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

import numpy as np
from xdsl.dialects.builtin import IntegerType, i1
from xdsl.ir import Attribute

from mllm_compiler.dialects.dims import UNKNOWN, Dim, combine
from mllm_compiler.dialects.onnx_types import ELEMENTS
from mllm_compiler.passes.shape_functions.knowledge import (
    Known,
    ShapeFunction,
    Shapes,
    broadcast,
    is_nonnegative,
    is_positive,
    of_grid,
    tensor,
)

if TYPE_CHECKING:
    from mllm_compiler.dialects.onnx_op import OnnxOp

ELEMENT_NUMBERS: Final[dict[int, Attribute]] = dict(
    enumerate(
        (
            ELEMENTS[name]
            for name in [
                "float",
                "uint8",
                "int8",
                "uint16",
                "int16",
                "int32",
                "int64",
                "string",
                "bool",
                "float16",
                "double",
                "uint32",
                "uint64",
                "complex64",
                "complex128",
                "bfloat16",
                "float8e4m3fn",
                "float8e4m3fnuz",
                "float8e5m2",
                "float8e5m2fnuz",
                "uint4",
                "int4",
                "float4e2m1",
                "float8e8m0",
                "uint2",
                "int2",
                "float6e2m3",
                "float6e3m2",
            ]
        ),
        start=1,
    )
)
"""Element types by the number that attributes such as `to` and `dtype` use."""


def same_as_first(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """The first result is like the first operand; contents are not followed."""
    return [replace(shapes.of(op.input(0)), contents=None)]


def identity(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """The result is the operand."""
    return [shapes.of(op.input(0))]


def truth(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """One truth value an element."""
    return [tensor(i1, shapes.of(op.input(0)).dims)]


def dropout(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """The data, and which elements were kept."""
    known = shapes.of(op.input(0))
    return [known, tensor(i1, known.dims)]


def broadcast_codes(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """Two operands of code, scale and zero point each broadcast."""
    a, b = shapes.of(op.input(0)), shapes.of(op.input(3))
    return [tensor(a.element, broadcast(shapes, op, [a.dims, b.dims]))]


def broadcast_first(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """Operands are broadcast; the element type is the first one's."""
    operands = [shapes.of(v) for v in op.inputs]
    return [tensor(operands[0].element, broadcast(shapes, op, [k.dims for k in operands]))]


def broadcast_truth(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """Operands are broadcast; one truth value an element."""
    return [tensor(i1, broadcast_first(op, shapes)[0].dims)]


def cast_to(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """The element type that `to` names; integers keep their contents."""
    known = shapes.of(op.input(0))
    element = ELEMENT_NUMBERS.get(cast(int, op.attribute("to")))
    return [_cast(known, element)]


def cast_like(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """The element type of the second operand."""
    return [_cast(shapes.of(op.input(0)), shapes.of(op.input(1)).element)]


def _cast(known: Known, element: Attribute | None) -> Known:
    contents = known.contents
    if contents is not None and element == i1:
        contents = tuple(_truth(d) for d in contents)
    return Known(element, known.dims, contents)


def _truth(dim: Dim) -> Dim:
    number = dim.as_int()
    if number is not None:
        return Dim.const(int(number != 0))
    return Dim.const(1) if is_positive(dim) else UNKNOWN


def where(op: OnnxOp, shapes: Shapes) -> list[Known]:
    """Elements of the second or third operand."""
    condition, yes, no = (shapes.of(op.input(i)) for i in range(3))
    dims = broadcast(shapes, op, [condition.dims, yes.dims, no.dims])
    result = tensor(yes.element or no.element, dims)
    mask, lhs, rhs = condition.grid(), yes.grid(), no.grid()
    if mask is None or lhs is None or rhs is None:
        return [result]
    chosen = np.frompyfunc(_choose, 3, 1)(mask, lhs, rhs)
    return [of_grid(result.element, np.asarray(chosen, object))]


def _choose(condition: Dim, yes: Dim, no: Dim) -> Dim:
    number = condition.as_int()
    if number is None:
        return yes if yes == no else UNKNOWN
    return yes if number else no


def _folding(
    shape: ShapeFunction, compute: Callable[[Dim, Dim], Dim], *, integers: bool = False
) -> ShapeFunction:
    """A broadcasting operator of two operands whose contents are computed."""

    def function(op: OnnxOp, shapes: Shapes) -> list[Known]:
        if len(op.operands) != 2:
            return list(shape(op, shapes))
        known, other = shapes.of(op.input(0)), shapes.of(op.input(1))
        lhs, rhs = known.grid(), other.grid()
        if lhs is None or rhs is None:
            return list(shape(op, shapes))
        if integers and not isinstance(known.element, IntegerType):
            return list(shape(op, shapes))
        (result,) = shape(op, shapes)
        grid = np.frompyfunc(compute, 2, 1)(lhs, rhs)
        return [of_grid(result.element, np.asarray(grid, object))]

    return function


def _folding_one(compute: Callable[[Dim], Dim]) -> ShapeFunction:
    def function(op: OnnxOp, shapes: Shapes) -> list[Known]:
        known = shapes.of(op.input(0))
        if known.contents is None:
            return [known]
        return [replace(known, contents=tuple(compute(d) for d in known.contents))]

    return function


def _quotient(a: Dim, b: Dim) -> Dim:
    """ONNX divides integers towards zero."""
    m, n = a.as_int(), b.as_int()
    if n == 0:
        return UNKNOWN
    if m is not None and n is not None:
        return Dim.const(abs(m) // abs(n) * (1 if (m < 0) == (n < 0) else -1))
    return combine("floordiv", a, b) if is_nonnegative(a) and is_nonnegative(b) else UNKNOWN


def _remainder(a: Dim, b: Dim) -> Dim:
    if b.as_int() == 0 or not is_nonnegative(a) or not is_nonnegative(b):
        return UNKNOWN
    return combine("mod", a, b)


def _extreme(word: str) -> Callable[[Dim, Dim], Dim]:
    sign = 1 if word == "max" else -1

    def compute(a: Dim, b: Dim) -> Dim:
        difference = (a - b) * sign
        if is_nonnegative(difference):
            return a
        return b if is_nonnegative(-difference) else combine(word, a, b)

    return compute


def _equal(a: Dim, b: Dim) -> Dim:
    difference = a - b
    if difference.as_int() is not None:
        return Dim.const(int(a == b))
    apart = is_positive(difference) or is_positive(-difference)
    return Dim.const(0) if apart else UNKNOWN


def _less(a: Dim, b: Dim) -> Dim:
    if is_positive(b - a):
        return Dim.const(1)
    return Dim.const(0) if is_nonnegative(a - b) else UNKNOWN


def _or_equal(a: Dim, b: Dim) -> Dim:
    if is_nonnegative(b - a):
        return Dim.const(1)
    return Dim.const(0) if is_positive(a - b) else UNKNOWN


def _and(a: Dim, b: Dim) -> Dim:
    if a.as_int() == 0 or b.as_int() == 0:
        return Dim()
    return _truth(a * b)


def _or(a: Dim, b: Dim) -> Dim:
    if a.as_int() == 1 or b.as_int() == 1:
        return Dim.const(1)
    return _truth(a + b)


def _not(dim: Dim) -> Dim:
    number = dim.as_int()
    return UNKNOWN if number is None else Dim.const(int(not number))


def _absolute(dim: Dim) -> Dim:
    number = dim.as_int()
    if number is not None:
        return Dim.const(abs(number))
    return dim if is_nonnegative(dim) else UNKNOWN


_SAME = (
    "Acos Acosh Asin Asinh Atan Atanh Celu Clip Cos Cosh CumProd CumSum Elu Erf Exp"
    " Gelu GroupNormalization HardSigmoid HardSwish Hardmax InstanceNormalization LRN LeakyRelu Log"
    " LogSoftmax LpNormalization MeanVarianceNormalization Mish PRelu Reciprocal"
    " Relu ReverseSequence RotaryEmbedding Scatter ScatterElements"
    " ScatterND Selu Shrink Sigmoid Sin Sinh Softmax Softplus Softsign Sqrt SwiGLU Swish Tan Tanh"
    " TensorScatter ThresholdedRelu Trilu BitwiseNot"
    " microsoft.Gelu microsoft.FastGelu microsoft.QuickGelu microsoft.RotaryEmbedding"
    " microsoft.QLinearSigmoid microsoft.QLinearLeakyRelu microsoft.QLinearSoftmax"
)
_BROADCAST = "BitShift BitwiseAnd BitwiseOr BitwiseXor Max Mean Min Pow Sum microsoft.BiasGelu"
_TRUTH = "IsInf IsNaN"

FUNCTIONS: Final[dict[str, ShapeFunction]] = {
    **{f"onnx.{name}": same_as_first for name in _SAME.split()},
    **{f"onnx.{name}": broadcast_first for name in _BROADCAST.split()},
    **{f"onnx.{name}": truth for name in _TRUTH.split()},
    **{f"onnx.microsoft.QLinear{name}": broadcast_codes for name in ("Add", "Mul")},
    "onnx.Identity": identity,
    "onnx.Dropout": dropout,
    "onnx.Cast": cast_to,
    "onnx.CastLike": cast_like,
    "onnx.Where": where,
    "onnx.Add": _folding(broadcast_first, lambda a, b: a + b),
    "onnx.Sub": _folding(broadcast_first, lambda a, b: a - b),
    "onnx.Mul": _folding(broadcast_first, lambda a, b: a * b),
    "onnx.Div": _folding(broadcast_first, _quotient, integers=True),
    "onnx.Mod": _folding(broadcast_first, _remainder, integers=True),
    "onnx.Max": _folding(broadcast_first, _extreme("max")),
    "onnx.Min": _folding(broadcast_first, _extreme("min")),
    "onnx.Equal": _folding(broadcast_truth, _equal),
    "onnx.Less": _folding(broadcast_truth, _less),
    "onnx.LessOrEqual": _folding(broadcast_truth, _or_equal),
    "onnx.Greater": _folding(broadcast_truth, lambda a, b: _less(b, a)),
    "onnx.GreaterOrEqual": _folding(broadcast_truth, lambda a, b: _or_equal(b, a)),
    "onnx.And": _folding(broadcast_truth, _and),
    "onnx.Or": _folding(broadcast_truth, _or),
    "onnx.Xor": broadcast_truth,
    "onnx.Not": _folding_one(_not),
    "onnx.Neg": _folding_one(lambda d: -d),
    "onnx.Abs": _folding_one(_absolute),
    "onnx.Sign": same_as_first,
    "onnx.Floor": _folding_one(lambda d: d),
    "onnx.Ceil": _folding_one(lambda d: d),
    "onnx.Round": _folding_one(lambda d: d),
}
"""Shape functions by operator."""
