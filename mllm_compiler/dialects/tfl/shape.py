"""Operators of TFLite that move elements."""

from __future__ import annotations

from math import prod
from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr, StringAttr, TensorType, i32
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    var_operand_def,
    var_result_def,
)

from mllm_compiler.dialects.mllm.contract import check
from mllm_compiler.dialects.tfl.base import FUSED, TflOp, listed, same_elements
from mllm_compiler.dialects.types import element_of, extents


@irdl_op_definition
class ReshapeOp(TflOp):
    """The same elements in another shape: x, shape -> y.

    C1  shape is a constant, and that of y.
    C2  x and y have as many elements, of one type.
    """

    name = "tfl.reshape"
    x = operand_def(TensorType)
    shape = operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        y = extents(self.y)
        check(self, 1, listed(self.shape) == list(y), "shape is a constant, and that of y")
        fits = prod(extents(self.x)) == prod(y) and same_elements([self.x, self.y])
        check(self, 2, fits, "x and y have as many elements, of one type")


@irdl_op_definition
class TransposeOp(TflOp):
    """Axes in another order: x, perm -> y; axis i of y is axis perm[i] of x.

    C1  perm is a constant and names every axis once.
    C2  y has the extents in that order.
    """

    name = "tfl.transpose"
    x = operand_def(TensorType)
    perm = operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        x, perm = extents(self.x), listed(self.perm)
        check(self, 1, sorted(perm or ()) == list(range(len(x))), "perm names every axis once")
        fits = extents(self.y) == tuple(x[p] for p in perm or ())
        check(self, 2, fits and same_elements([self.x, self.y]), "y has the extents in that order")


@irdl_op_definition
class ConcatenationOp(TflOp):
    """Tensors behind one another along an axis: xs -> y.

    C1  the extents along the axis add up, the others are equal; all have one type.
    """

    name = "tfl.concatenation"
    ENUMS: ClassVar[dict[str, tuple[str, ...]]] = FUSED
    xs = var_operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    fused_activation_function = prop_def(StringAttr, default_value=StringAttr("NONE"))
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        parts, y, axis = [extents(v) for v in self.xs], extents(self.y), self.axis.value.data
        fits = 0 <= axis < len(y) and sum(p[axis] for p in parts) == y[axis]
        fits = fits and all((*p[:axis], y[axis], *p[axis + 1 :]) == y for p in parts)
        fits = fits and same_elements([*self.xs, self.y])
        check(self, 1, fits, "extents along the axis add up, others are equal")


@irdl_op_definition
class SplitOp(TflOp):
    """A tensor in parts of one extent along an axis: axis, x -> ys.

    C1  axis is a constant.
    C2  the extent along it is cut into num_splits equal parts.
    """

    name = "tfl.split"
    axis = operand_def(TensorType)
    x = operand_def(TensorType)
    num_splits = prop_def(IntegerAttr)
    ys = var_result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        axis, x, count = listed(self.axis), extents(self.x), self.num_splits.value.data
        check(self, 1, axis is not None and len(axis) == 1, "axis is a constant")
        at = (axis or [0])[0]
        part = (*x[:at], x[at] // count, *x[at + 1 :])
        fits = len(self.ys) == count and x[at] % count == 0
        check(self, 2, fits and all(extents(y) == part for y in self.ys), "equal parts")


@irdl_op_definition
class StridedSliceOp(TflOp):
    """Every stride-th element of a range along each axis: x, begin, end, strides -> y.

    C1  begin, end and strides are constants, a number for each axis.
    C2  y has as many elements as lie in each range, and no mask is set.
    """

    name = "tfl.strided_slice"
    x = operand_def(TensorType)
    begin = operand_def(TensorType)
    end = operand_def(TensorType)
    strides = operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        sides = [listed(v) for v in (self.begin, self.end, self.strides)]
        x = extents(self.x)
        given = [s for s in sides if s is not None and len(s) == len(x)]
        check(self, 1, len(given) == 3, "begin, end and strides are constants")
        counts = tuple(len(range(b, e, s)) for b, e, s in zip(*given, strict=True))
        check(self, 2, counts == extents(self.y), "y has as many elements as lie in each range")


@irdl_op_definition
class PadV2Op(TflOp):
    """A tensor with a number around it: x, paddings [rank, 2], value -> y.

    C1  paddings is a constant.
    C2  y is as much larger.
    """

    name = "tfl.padv2"
    x = operand_def(TensorType)
    paddings = operand_def(TensorType)
    value = operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        x, paddings = extents(self.x), listed(self.paddings)
        known = paddings is not None and len(paddings) == 2 * len(x)
        check(self, 1, known, "paddings is a constant [rank, 2]")
        around = paddings or []
        grown = tuple(n + around[2 * i] + around[2 * i + 1] for i, n in enumerate(x))
        check(self, 2, extents(self.y) == grown, "y is as much larger")


@irdl_op_definition
class GatherOp(TflOp):
    """Elements of an axis by their numbers: x, indices -> y.

    C1  indices are i32.
    C2  y has the extents of indices in place of the axis.
    """

    name = "tfl.gather"
    x = operand_def(TensorType)
    indices = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    batch_dims = prop_def(IntegerAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        check(self, 1, element_of(self.indices) == i32, "indices are i32")
        x, axis = extents(self.x), self.axis.value.data
        fits = extents(self.y) == (*x[:axis], *extents(self.indices), *x[axis + 1 :])
        check(self, 2, fits, "y has the extents of indices in place of the axis")


@irdl_op_definition
class BroadcastToOp(TflOp):
    """A tensor repeated along axes of extent 1: x, shape -> y.

    C1  shape is a constant, and that of y.
    """

    name = "tfl.broadcast_to"
    x = operand_def(TensorType)
    shape = operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        fits = listed(self.shape) == list(extents(self.y))
        check(self, 1, fits, "shape is a constant, and that of y")
