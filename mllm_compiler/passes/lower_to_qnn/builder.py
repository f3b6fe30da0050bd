"""Inserts qnn ops in place of one mllm op: the few shapes of call that lowerings are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import i1, i32, i64
from xdsl.ir import Attribute, SSAValue

from mllm_compiler.dialects import qnn
from mllm_compiler.dialects.calls import Value, ints
from mllm_compiler.dialects.dims import tensor_of
from mllm_compiler.dialects.mllm import BlobAttr, ConstantOp, WeightOp, array_of
from mllm_compiler.dialects.mllm.constants import LARGEST_CONSTANT
from mllm_compiler.dialects.qnn import QnnOp
from mllm_compiler.dialects.types import ELEMENTS, element_of, extents
from mllm_compiler.passes.lowering import TensorBuilder
from mllm_compiler.passes.matching import made_by


@dataclass
class Builder(TensorBuilder):
    """Where lowered ops go.

    Attributes:
        positions: How many positions tables of angles have.
    """

    positions: int = 0

    def call(
        self,
        operation: type[QnnOp],
        arguments: Sequence[SSAValue | None],
        dims: Sequence[int],
        element: Attribute | None = None,
        /,
        **properties: Value,
    ) -> SSAValue:
        """Makes an op, of the element type of the first operand or of another."""
        if element is None:
            assert arguments[0] is not None
            element = element_of(arguments[0])
        op = operation.call(arguments, tensor_of(element, dims), **properties)
        self.insert(op)
        return op.y

    def weight(self, array: NDArray[np.generic], like: SSAValue) -> SSAValue:
        """Other numbers in place of a weight, under its name; small ones are a constant."""
        if array.size <= LARGEST_CONSTANT:
            return self.constant(array)
        old = made_by(like, WeightOp)
        name = None if old is None or old.weight_name is None else old.weight_name.data
        blob = BlobAttr.of(self.store.add(array), ELEMENTS[array.dtype], array.shape)
        op = WeightOp(blob, name)
        self.insert(op)
        self.store.release()
        return op.result

    def reshape(self, x: SSAValue, dims: Sequence[int]) -> SSAValue:
        """The same elements in another shape; of a reshape, those that it reads."""
        made = made_by(x, qnn.ReshapeOp)
        source = x if made is None else made.x
        if extents(source) == tuple(dims):
            return source
        if (constant := made_by(source, ConstantOp)) is not None:
            return self.constant(array_of(constant.value).reshape(dims))
        return self.call(qnn.ReshapeOp, [source], dims)

    def permute(self, x: SSAValue, perm: Sequence[int]) -> SSAValue:
        """Axes in another order; of a transpose, those that it reads."""
        made = made_by(x, qnn.TransposeOp)
        if made is not None:
            before = ints(made.perm)
            x, perm = made.x, [before[p] for p in perm]
        if list(perm) == sorted(perm):
            return x
        dims = [extents(x)[p] for p in perm]
        return self.call(qnn.TransposeOp, [x], dims, perm=perm)

    def binary(
        self,
        operation: type[QnnOp],
        a: SSAValue,
        b: SSAValue,
        element: Attribute | None = None,
    ) -> SSAValue:
        """A function of pairs of elements."""
        dims = np.broadcast_shapes(extents(a), extents(b))
        return self.call(operation, [a, b], dims, element)

    def unary(self, operation: type[QnnOp], x: SSAValue) -> SSAValue:
        """A function of each element."""
        return self.call(operation, [x], extents(x))

    def add(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """A + b."""
        return self.binary(qnn.ElementWiseAddOp, a, b)

    def subtract(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """A - b."""
        return self.binary(qnn.ElementWiseSubtractOp, a, b)

    def mul(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """The product of elements."""
        return self.binary(qnn.ElementWiseMultiplyOp, a, b)

    def minimum(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """The smaller of elements."""
        return self.binary(qnn.ElementWiseMinimumOp, a, b)

    def softmax(self, x: SSAValue) -> SSAValue:
        """The softmax along the last axis."""
        return self.call(qnn.SoftmaxOp, [x], extents(x), axis=len(extents(x)) - 1, beta=1.0)

    def cast(self, x: SSAValue, element: Attribute) -> SSAValue:
        """Elements in another type; truth is what is not 0, as HTP makes none of halves."""
        element = i32 if element == i64 else element
        if element_of(x) == element:
            return x
        if element == i1:
            zero = self.constant(np.zeros((), np.int32)) if element_of(x) == i32 else self.real(0.0)
            return self.binary(qnn.ElementWiseNotEqualOp, x, zero, i1)
        return self.call(qnn.CastOp, [x], extents(x), element)

    def concat(self, parts: Sequence[SSAValue], axis: int) -> SSAValue:
        """Tensors behind one another."""
        dims = list(extents(parts[0]))
        dims[axis] = sum(extents(part)[axis] for part in parts)
        return self.call(qnn.ConcatOp, parts, dims, axis=axis)

    def slice(self, x: SSAValue, axis: int, begin: int, end: int) -> SSAValue:
        """A part of an axis."""
        dims = extents(x)
        ranges = [
            n for i, d in enumerate(dims) for n in ((begin, end, 1) if i == axis else (0, d, 1))
        ]
        made = (*dims[:axis], end - begin, *dims[axis + 1 :])
        return self.call(qnn.StridedSliceOp, [x], made, ranges=ranges)

    def tile(self, x: SSAValue, dims: Sequence[int]) -> SSAValue:
        """A tensor repeated to other extents, by the rules of NumPy."""
        whole = (*(1,) * (len(dims) - len(extents(x))), *extents(x))
        times = [n // m for n, m in zip(dims, whole, strict=True)]
        x = self.reshape(x, whole)
        return x if whole == tuple(dims) else self.call(qnn.TileOp, [x], dims, multiples=times)

    def gather(self, x: SSAValue, indices: SSAValue, axis: int) -> SSAValue:
        """Elements of an axis; of another than the first, by constants, or turned to the front.

        HTP counts no index from the end: constant ones are counted from the start.
        """
        indices, dims = self.cast(indices, i32), extents(x)
        if (constant := made_by(indices, ConstantOp)) is not None:
            numbers = array_of(constant.value).astype(np.int32)
            indices = self.constant(np.where(numbers < 0, numbers + dims[axis], numbers))
        if not extents(indices):
            found = self.gather(x, self.reshape(indices, (1,)), axis)
            return self.reshape(found, (*dims[:axis], *dims[axis + 1 :]))
        fixed = made_by(indices, ConstantOp) or made_by(indices, WeightOp)
        if axis == 0 or fixed is not None:
            made = (*dims[:axis], *extents(indices), *dims[axis + 1 :])
            return self.call(qnn.GatherOp, [x, indices], made, axis=axis)
        rest = [a for a in range(len(dims)) if a != axis]
        found = self.gather(self.transpose(x, [axis, *rest]), indices, 0)
        count = len(extents(indices))
        behind = list(range(count, count + len(rest)))
        return self.transpose(found, [*behind[:axis], *range(count), *behind[axis:]])

    def product(self, a: SSAValue, b: SSAValue, *, transpose_b: bool = False) -> SSAValue:
        """A product of matrices, of one rank."""
        rank = max(len(extents(a)), len(extents(b)))
        a, b = (self.reshape(x, (*(1,) * (rank - len(extents(x))), *extents(x))) for x in (a, b))
        first, second = extents(a), extents(b)
        columns = second[-2] if transpose_b else second[-1]
        dims = (*np.broadcast_shapes(first[:-2], second[:-2]), first[-2], columns)
        turned = {"transpose_in0": False, "transpose_in1": transpose_b}
        return self.call(qnn.MatMulOp, [a, b], dims, **turned)

    def linear(self, x: SSAValue, weight: SSAValue, bias: SSAValue | None) -> SSAValue:
        """A product with the rows of a weight: x is a matrix for QNN."""
        dims, (n, depth) = extents(x), extents(weight)
        rows = self.reshape(x, (int(np.prod(dims[:-1])), depth))
        made = self.call(qnn.FullyConnectedOp, [rows, weight, bias], (extents(rows)[0], n))
        return self.reshape(made, (*dims[:-1], n))
