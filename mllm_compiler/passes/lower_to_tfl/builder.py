"""Inserts tfl ops in place of one mllm op: the few shapes of call that lowerings are made of."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
from xdsl.dialects.builtin import f32, i32
from xdsl.ir import Attribute, Operation, SSAValue

from mllm_compiler.dialects import tfl
from mllm_compiler.dialects.calls import Value
from mllm_compiler.dialects.dims import tensor_of
from mllm_compiler.dialects.tfl import TflOp
from mllm_compiler.dialects.types import element_of, extents
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.graphs import location_of
from mllm_compiler.passes.lowering import TensorBuilder


@dataclass
class Builder(TensorBuilder):
    """Where lowered ops go.

    Attributes:
        target: What errors name.
        operators: Those that may be written; empty: all.
        positions: How many rows tables of angles have.
    """

    target: str = "tflite"
    operators: frozenset[str] = frozenset()
    positions: int = 0
    _made: dict[Hashable, SSAValue] = field(default_factory=dict[Hashable, SSAValue])

    def takes(self, operation: type[TflOp]) -> bool:
        """Whether an operator may be written."""
        return not self.operators or operation.operator() in self.operators

    def refused(self, op: Operation, why: str, remedy: str) -> CompileError:
        """What to raise where an op has no operators."""
        text = f"'{op.name}' has no home on '{self.target}': {why}"
        return CompileError("MLC-R001", text, location=location_of(op), remedy=remedy)

    def once(self, key: Hashable, make: Callable[[], SSAValue]) -> SSAValue:
        """A value that several ops of a graph read, made for the first of them."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

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

    def whole(self, numbers: Sequence[int]) -> SSAValue:
        """A constant list of i32: axes, shapes."""
        return self.constant(np.array(numbers, np.int32))

    def reshape(self, x: SSAValue, dims: Sequence[int]) -> SSAValue:
        """The same elements in another shape."""
        if extents(x) == tuple(dims):
            return x
        return self.call(tfl.ReshapeOp, [x, self.whole(dims)], dims)

    def broadcast(self, x: SSAValue, dims: Sequence[int]) -> SSAValue:
        """A tensor repeated along axes of extent 1."""
        if extents(x) == tuple(dims):
            return x
        if element_of(x) == f32 and not self.takes(tfl.BroadcastToOp):
            return self.mul(x, self.constant(np.ones(dims, np.float32)))
        return self.call(tfl.BroadcastToOp, [x, self.whole(dims)], dims)

    def permute(self, x: SSAValue, perm: Sequence[int]) -> SSAValue:
        """Axes in another order."""
        dims = [extents(x)[p] for p in perm]
        return self.call(tfl.TransposeOp, [x, self.whole(perm)], dims)

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

    def subtract(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """A - b."""
        return self.binary(tfl.SubOp, a, b)

    def minimum(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """The smaller of elements."""
        return self.binary(tfl.MinimumOp, a, b)

    def softmax(self, x: SSAValue) -> SSAValue:
        """The softmax along the last axis."""
        return self.call(tfl.SoftmaxOp, [x], extents(x), beta=1.0)

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

    def linear(self, x: SSAValue, weight: SSAValue, bias: SSAValue | None) -> SSAValue:
        """A product with the rows of a weight."""
        dims = (*extents(x)[:-1], extents(weight)[0])
        return self.call(tfl.FullyConnectedOp, [x, weight, bias], dims)
