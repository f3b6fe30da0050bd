"""Operators of QNN that move elements."""

from __future__ import annotations

from math import prod
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, TensorType
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def, var_operand_def

from mllm_compiler.dialects.calls import ints
from mllm_compiler.dialects.mllm import ConstantOp, WeightOp
from mllm_compiler.dialects.mllm.contract import check
from mllm_compiler.dialects.qnn.base import QnnOp
from mllm_compiler.dialects.types import extents


@irdl_op_definition
class ReshapeOp(QnnOp):
    """The same elements in another shape: x -> y.

    C1  x and y have as many elements.
    """

    name = "qnn.reshape"
    x = operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        fits = prod(extents(self.x)) == prod(extents(self.y))
        check(self, 1, fits, "x and y have as many elements")


@irdl_op_definition
class TransposeOp(QnnOp):
    """Axes in another order: x -> y; axis i of y is axis perm[i] of x.

    C1  perm names every axis once.
    C2  y has the extents in that order.
    """

    name = "qnn.transpose"
    TENSORS: ClassVar[dict[str, tuple[str, int]]] = {"perm": ("ui32", 1)}
    x = operand_def(TensorType)
    perm = prop_def(DenseArrayBase)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        x, perm = extents(self.x), ints(self.perm)
        check(self, 1, sorted(perm) == list(range(len(x))), "perm names every axis once")
        fits = extents(self.y) == tuple(x[p] for p in perm)
        check(self, 2, fits, "y has the extents in that order")


@irdl_op_definition
class ConcatOp(QnnOp):
    """Tensors behind one another along an axis: xs -> y.

    C1  the extents along the axis add up, the others are equal.
    """

    name = "qnn.concat"
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
class StridedSliceOp(QnnOp):
    """Every stride-th element of a range along each axis: x -> y.

    C1  ranges has begin, end and stride for each axis.
    C2  y has as many elements as lie in each range.
    """

    name = "qnn.strided_slice"
    TENSORS: ClassVar[dict[str, tuple[str, int]]] = {"ranges": ("i32", 3)}
    x = operand_def(TensorType)
    ranges = prop_def(DenseArrayBase)
    y = result_def(TensorType)

    def sides(self) -> list[tuple[int, int, int]]:
        """Begin, end and stride for each axis."""
        numbers = ints(self.ranges)
        return list(zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True))

    def check_contract(self) -> None:
        """C1 and C2."""
        fits = len(ints(self.ranges)) == 3 * len(extents(self.x))
        check(self, 1, fits, "ranges has begin, end and stride for each axis")
        counts = tuple(len(range(*side)) for side in self.sides())
        check(self, 2, counts == extents(self.y), "y has as many elements as lie in each range")


@irdl_op_definition
class GatherOp(QnnOp):
    """Elements of an axis by their numbers: x, indices -> y.

    C1  y has the extents of indices in place of the axis.
    C2  axis is 0, or indices is a constant: HTP takes others, and gathers something else.
    """

    name = "qnn.gather"
    SCALARS: ClassVar[dict[str, str]] = {"axis": "i32"}
    x = operand_def(TensorType)
    indices = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        x, axis = extents(self.x), self.axis.value.data
        known = axis == 0 or isinstance(self.indices.owner, ConstantOp | WeightOp)
        check(self, 2, known, "axis is 0, or indices is a constant")
        fits = extents(self.y) == (*x[:axis], *extents(self.indices), *x[axis + 1 :])
        check(self, 1, fits, "y has the extents of indices in place of the axis")


@irdl_op_definition
class TileOp(QnnOp):
    """A tensor repeated along its axes: x -> y.

    C1  y is as many times larger as multiples says.
    """

    name = "qnn.tile"
    TENSORS: ClassVar[dict[str, tuple[str, int]]] = {"multiples": ("ui32", 1)}
    x = operand_def(TensorType)
    multiples = prop_def(DenseArrayBase)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        x, times = extents(self.x), ints(self.multiples)
        fits = len(times) == len(x)
        fits = fits and extents(self.y) == tuple(n * t for n, t in zip(x, times, strict=True))
        check(self, 1, fits, "y is as many times larger as multiples says")
