"""Inserts rknn ops in place of one mllm op: the few shapes of call that lowerings are made of."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
from xdsl.dialects.builtin import i1
from xdsl.ir import Attribute, SSAValue

from mllm_compiler.dialects.dims import tensor_of
from mllm_compiler.dialects.onnx_attributes import attribute_of
from mllm_compiler.dialects.rknn import operators
from mllm_compiler.dialects.types import element_of, extents
from mllm_compiler.passes.lowering import TensorBuilder

Plain = int | float | str | Sequence[int]
"""What an attribute may be made from."""


@dataclass
class Builder(TensorBuilder):
    """Where lowered ops go.

    Attributes:
        hidden: What is added to the score of a key that a query must not see.
        positions: How many positions tables of rotary angles have.
    """

    hidden: float = -1e4
    positions: int = 0
    _once: dict[Hashable, SSAValue] = field(default_factory=dict[Hashable, SSAValue])

    def several(
        self,
        operator: str,
        arguments: Sequence[SSAValue | None],
        results: Sequence[Attribute],
        /,
        **attributes: Plain,
    ) -> Sequence[SSAValue]:
        """Makes an op and answers with its results."""
        kind = operators()[operator]
        formals = kind.make([], []).schema.attributes
        given = {n: attribute_of(v, formals[n].kind) for n, v in attributes.items()}
        op = kind.make(arguments, results, given)
        self.insert(op)
        return op.results

    def call(
        self,
        operator: str,
        arguments: Sequence[SSAValue | None],
        dims: Sequence[int],
        element: Attribute | None = None,
        /,
        **attributes: Plain,
    ) -> SSAValue:
        """Makes an op with one result, of the element type of the first operand or of another."""
        if element is None:
            assert arguments[0] is not None
            element = element_of(arguments[0])
        return self.several(operator, arguments, [tensor_of(element, dims)], **attributes)[0]

    def once(self, key: Hashable, make: Callable[[], SSAValue]) -> SSAValue:
        """What is made when a key is first asked for in a graph."""
        if key not in self._once:
            self._once[key] = make()
        return self._once[key]

    def whole(self, *numbers: int) -> SSAValue:
        """A constant list of i64: axes, shapes, bounds."""
        return self.constant(np.array(numbers, np.int64))

    def reshape(self, x: SSAValue, dims: Sequence[int]) -> SSAValue:
        """The same elements in another shape."""
        if extents(x) == tuple(dims):
            return x
        return self.call("Reshape", [x, self.whole(*dims)], dims)

    def permute(self, x: SSAValue, perm: Sequence[int]) -> SSAValue:
        """Axes in another order."""
        dims = extents(x)
        return self.call("Transpose", [x], [dims[p] for p in perm], perm=list(perm))

    def binary(self, operator: str, a: SSAValue, b: SSAValue) -> SSAValue:
        """A function of pairs of elements."""
        return self.call(operator, [a, b], np.broadcast_shapes(extents(a), extents(b)))

    def compare(self, operator: str, a: SSAValue, b: SSAValue) -> SSAValue:
        """Whether pairs of elements are so."""
        return self.call(operator, [a, b], np.broadcast_shapes(extents(a), extents(b)), i1)

    def unary(self, operator: str, x: SSAValue) -> SSAValue:
        """A function of each element."""
        return self.call(operator, [x], extents(x))

    def add(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """A + b."""
        return self.binary("Add", a, b)

    def sum(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """A + b, once in a graph."""
        return self.once(("sum", a, b), lambda: self.add(a, b))

    def subtract(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """A - b."""
        return self.binary("Sub", a, b)

    def minimum(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """The smaller of elements."""
        return self.binary("Min", a, b)

    def softmax(self, x: SSAValue) -> SSAValue:
        """Softmax along the last axis."""
        return self.call("Softmax", [x], extents(x), axis=-1)

    def mul(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """The product of elements."""
        return self.binary("Mul", a, b)

    def cast(self, x: SSAValue, element: Attribute) -> SSAValue:
        """Elements in another type."""
        if element_of(x) == element:
            return x
        return self.call("Cast", [x], extents(x), element, to=NUMBERS[str(element)])

    def concat(self, parts: Sequence[SSAValue], axis: int) -> SSAValue:
        """Tensors behind one another."""
        dims = list(extents(parts[0]))
        dims[axis] = sum(extents(part)[axis] for part in parts)
        return parts[0] if len(parts) == 1 else self.call("Concat", parts, dims, axis=axis)

    def slice(self, x: SSAValue, axis: int, start: int, end: int) -> SSAValue:
        """Some of an axis."""
        dims = list(extents(x))
        dims[axis] = end - start
        sides = [self.whole(n) for n in (start, end, axis)]
        return self.call("Slice", [x, *sides], dims)

    def product(self, a: SSAValue, b: SSAValue, *, transpose_b: bool = False) -> SSAValue:
        """A product of matrices."""
        if transpose_b:
            rank = len(extents(b))
            b = self.transpose(b, (*range(rank - 2), rank - 1, rank - 2))
        first, second = extents(a), extents(b)
        before = np.broadcast_shapes(first[:-2], second[:-2])
        return self.call("MatMul", [a, b], (*before, first[-2], second[-1]))

    def linear(self, x: SSAValue, weight: SSAValue, bias: SSAValue | None) -> SSAValue:
        """A product with the rows of a weight, which the toolkit turns when it compiles."""
        turned = self.once(("turned", weight), lambda: self.transpose(weight, (1, 0)))
        y = self.product(x, turned)
        return y if bias is None else self.add(y, bias)


NUMBERS = {"f32": 1, "i32": 6, "i64": 7, "i1": 9}
"""ONNX's numbers of element types."""
