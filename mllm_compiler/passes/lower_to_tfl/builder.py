"""Inserts tfl ops in place of one mllm op: the few shapes of call that lowerings are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import i32
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue

from mllm_compiler.dialects import tfl
from mllm_compiler.dialects.calls import Value
from mllm_compiler.dialects.dims import tensor_of
from mllm_compiler.dialects.mllm import BlobAttr, ConstantOp, WeightOp
from mllm_compiler.dialects.mllm.constants import LARGEST_CONSTANT
from mllm_compiler.dialects.tfl import TflOp
from mllm_compiler.dialects.tfl.base import extents
from mllm_compiler.dialects.types import ELEMENTS, element_of
from mllm_compiler.passes.graphs import block_of
from mllm_compiler.weights import WeightStore


@dataclass
class Builder:
    """Where lowered ops go.

    Attributes:
        graph: The graph that is lowered.
        at: The op that is being lowered; what is made stands before it, with its location.
        store: The bytes of weights.
    """

    graph: FuncOp
    at: Operation
    store: WeightStore
    _constants: dict[tuple[str, tuple[int, ...], bytes], SSAValue] = field(
        default_factory=dict[tuple[str, tuple[int, ...], bytes], SSAValue]
    )

    def call(
        self,
        operation: type[TflOp],
        arguments: Sequence[SSAValue | None],
        dims: Sequence[int],
        element: Attribute | None = None,
        /,
        **properties: Value,
    ) -> SSAValue:
        """Makes an op with one result, of the element type of the first operand or of another."""
        if element is None:
            assert arguments[0] is not None
            element = element_of(arguments[0])
        op = operation.call(arguments, tensor_of(element, dims), **properties)
        self.insert(op)
        return op.results[0]

    def insert(self, op: Operation) -> None:
        """Puts an op before the one that is being lowered."""
        op.location = self.at.location
        block_of(self.graph).insert_op_before(op, self.at)

    def constant(self, array: NDArray[np.generic]) -> SSAValue:
        """A constant; equal ones of a graph are one, at its start."""
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self._constants:
            made: ConstantOp | WeightOp
            if array.size <= LARGEST_CONSTANT:
                made = ConstantOp.of(array)
            else:
                blob = BlobAttr.of(self.store.add(array), ELEMENTS[array.dtype], array.shape)
                made = WeightOp(blob)
            block = block_of(self.graph)
            assert block.first_op is not None
            block.insert_op_before(made, block.first_op)
            self._constants[key] = made.results[0]
        return self._constants[key]

    def whole(self, numbers: Sequence[int]) -> SSAValue:
        """A constant list of i32: axes, shapes."""
        return self.constant(np.array(numbers, np.int32))

    def real(self, number: float) -> SSAValue:
        """A constant scalar of f32."""
        return self.constant(np.array(number, np.float32))

    def reshape(self, x: SSAValue, dims: Sequence[int]) -> SSAValue:
        """The same elements in another shape."""
        if extents(x) == tuple(dims):
            return x
        return self.call(tfl.ReshapeOp, [x, self.whole(dims)], dims)

    def transpose(self, x: SSAValue, perm: Sequence[int]) -> SSAValue:
        """Axes in another order; a reshape where only axes of extent 1 move."""
        dims = extents(x)
        turned = [dims[p] for p in perm]
        moved = [p for p in perm if dims[p] != 1]
        if moved == sorted(moved):
            return self.reshape(x, turned)
        return self.call(tfl.TransposeOp, [x, self.whole(perm)], turned)

    def binary(self, operation: type[TflOp], a: SSAValue, b: SSAValue) -> SSAValue:
        """A function of pairs of elements."""
        return self.call(operation, [a, b], np.broadcast_shapes(extents(a), extents(b)))

    def unary(self, operation: type[TflOp], x: SSAValue) -> SSAValue:
        """A function of each element."""
        return self.call(operation, [x], extents(x))

    def add(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """A + b."""
        return self.binary(tfl.AddOp, a, b)

    def mul(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """The product of elements."""
        return self.binary(tfl.MulOp, a, b)

    def mean(self, x: SSAValue) -> SSAValue:
        """The mean along the last axis, which stays as 1."""
        dims = (*extents(x)[:-1], 1)
        return self.call(tfl.MeanOp, [x, self.whole([len(dims) - 1])], dims, keep_dims=True)

    def cast(self, x: SSAValue, element: Attribute) -> SSAValue:
        """Elements in another type."""
        if element_of(x) == element:
            return x
        return self.call(tfl.CastOp, [x], extents(x), element)

    def indices(self, x: SSAValue) -> SSAValue:
        """Whole numbers as gathers read them."""
        return self.cast(x, i32)

    def concat(self, parts: Sequence[SSAValue], axis: int) -> SSAValue:
        """Tensors behind one another."""
        dims = list(extents(parts[0]))
        dims[axis] = sum(extents(part)[axis] for part in parts)
        return self.call(tfl.ConcatenationOp, parts, dims, axis=axis)

    def split(self, x: SSAValue, count: int, axis: int) -> list[SSAValue]:
        """A tensor in equal parts along an axis."""
        dims = list(extents(x))
        dims[axis] //= count
        kinds = [tensor_of(element_of(x), dims)] * count
        op = tfl.SplitOp.call([self.whole([axis]), x], kinds, num_splits=count)
        self.insert(op)
        return [*op.results]

    def product(self, a: SSAValue, b: SSAValue, *, transpose_b: bool = False) -> SSAValue:
        """A product of matrices."""
        first, second = extents(a), extents(b)
        columns = second[-2] if transpose_b else second[-1]
        before = np.broadcast_shapes(first[:-2], second[:-2])
        dims = (*before, first[-2], columns)
        return self.call(tfl.BatchMatmulOp, [a, b], dims, adj_y=transpose_b)
