"""Operations of Neuron that move elements."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr, TensorType
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    var_operand_def,
    var_result_def,
)

from mllm_compiler.dialects.mllm.contract import check
from mllm_compiler.dialects.neuron.base import NeuronOp, Scalar
from mllm_compiler.dialects.tfl.base import listed
from mllm_compiler.dialects.types import extents


@irdl_op_definition
class ReshapeOp(NeuronOp):
    """The same elements in another shape: x, shape -> y.

    C1  shape is a constant, and that of y.
    C2  x and y have as many elements.
    """

    name = "neuron.reshape"
    CODE: ClassVar[int] = 22
    x = operand_def(TensorType)
    shape = operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        y = extents(self.y)
        check(self, 1, listed(self.shape) == list(y), "shape is a constant, and that of y")
        check(self, 2, prod(extents(self.x)) == prod(y), "x and y have as many elements")


@irdl_op_definition
class TransposeOp(NeuronOp):
    """Axes in another order: x, perm -> y; axis i of y is axis perm[i] of x.

    C1  perm is a constant and names every axis once.
    C2  y has the extents in that order.
    """

    name = "neuron.transpose"
    CODE: ClassVar[int] = 37
    x = operand_def(TensorType)
    perm = operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        x, perm = extents(self.x), listed(self.perm) or []
        check(self, 1, sorted(perm) == list(range(len(x))), "perm names every axis once")
        check(self, 2, extents(self.y) == tuple(x[p] for p in perm), "y in that order")


@irdl_op_definition
class ConcatenationOp(NeuronOp):
    """Tensors behind one another along an axis: xs -> y.

    C1  the extents along the axis add up, the others are equal.
    """

    name = "neuron.concatenation"
    CODE: ClassVar[int] = 2
    SCALARS: ClassVar[Mapping[str, Scalar]] = {"axis": Scalar.INT32}
    xs = var_operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        parts, y, axis = [extents(v) for v in self.xs], extents(self.y), self.axis.value.data
        fits = 0 <= axis < len(y) and sum(p[axis] for p in parts) == y[axis]
        fits = fits and all((*p[:axis], y[axis], *p[axis + 1 :]) == y for p in parts)
        check(self, 1, fits, "extents along the axis add up, others are equal")


@irdl_op_definition
class SplitOp(NeuronOp):
    """A tensor in parts of one extent along an axis: x, axis -> ys.

    C1  axis is a constant.
    C2  the extent along it is cut into num_splits equal parts.
    """

    name = "neuron.split"
    CODE: ClassVar[int] = 87
    SCALARS: ClassVar[Mapping[str, Scalar]] = {"num_splits": Scalar.INT32}
    x = operand_def(TensorType)
    axis = operand_def(TensorType)
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
class StridedSliceOp(NeuronOp):
    """Every stride-th element of a range along each axis: x, begin, end, strides -> y.

    C1  begin, end and strides are constants, a number for each axis.
    C2  y has as many elements as lie in each range, and no mask is set.
    """

    name = "neuron.strided_slice"
    CODE: ClassVar[int] = 35
    SCALARS: ClassVar[Mapping[str, Scalar]] = {
        "begin_mask": Scalar.INT32,
        "end_mask": Scalar.INT32,
        "shrink_axis_mask": Scalar.INT32,
    }
    x = operand_def(TensorType)
    begin = operand_def(TensorType)
    end = operand_def(TensorType)
    strides = operand_def(TensorType)
    begin_mask = prop_def(IntegerAttr)
    end_mask = prop_def(IntegerAttr)
    shrink_axis_mask = prop_def(IntegerAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        sides = [listed(v) for v in (self.begin, self.end, self.strides)]
        x, masks = extents(self.x), (self.begin_mask, self.end_mask, self.shrink_axis_mask)
        given = [s for s in sides if s is not None and len(s) == len(x)]
        check(self, 1, len(given) == 3, "begin, end and strides are constants")
        counts = tuple(len(range(b, e, s)) for b, e, s in zip(*given, strict=True))
        fits = counts == extents(self.y) and not any(mask.value.data for mask in masks)
        check(self, 2, fits, "y has as many elements as lie in each range, and no mask is set")


@irdl_op_definition
class PadV2Op(NeuronOp):
    """A tensor with a number around it: x, paddings [rank, 2], value [1] -> y.

    C1  paddings is a constant.
    C2  y is as much larger.
    """

    name = "neuron.pad_v2"
    CODE: ClassVar[int] = 69
    x = operand_def(TensorType)
    paddings = operand_def(TensorType)
    value = operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        x, around = extents(self.x), listed(self.paddings) or []
        check(self, 1, len(around) == 2 * len(x), "paddings is a constant [rank, 2]")
        grown = tuple(n + around[2 * i] + around[2 * i + 1] for i, n in enumerate(x))
        check(self, 2, extents(self.y) == grown, "y is as much larger")
