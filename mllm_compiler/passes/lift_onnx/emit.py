"""What converters of ONNX operators share: insertion with location, constants, known contents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from mllm_compiler.dialects.dims import Dim, DimsAttr, dims_of
from mllm_compiler.dialects.mllm import (
    LARGEST_CONSTANT,
    BinaryKind,
    BinaryOp,
    BlobAttr,
    ConcatOp,
    ConstantOp,
    IotaOp,
    ReshapeOp,
    WeightOp,
    array_of,
    constant_array,
)
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.dialects.types import (
    ELEMENTS,
    dtype_of,
    element_of,
    ranked,
    shape_of,
    tensor_type,
)
from mllm_compiler.passes.infer_shapes import CONTENTS
from mllm_compiler.weights import WeightStore, array_bytes


@dataclass(frozen=True)
class Emit:
    """Inserts ops before the operator that is converted, at its location.

    Attributes:
        op: The operator.
        store: Where the bytes of weights lie, and go.
    """

    op: OnnxOp
    store: WeightStore

    def __call__(self, new: Operation) -> SSAValue:
        """Inserts an op and answers with its first result."""
        new.location = self.op.location
        Rewriter.insert_op(new, InsertPoint.before(self.op))
        return new.results[0]

    def array(self, value: NDArray[np.generic]) -> SSAValue:
        """A constant of at most 64 elements."""
        return self(ConstantOp.of(value))

    def stored(self, value: NDArray[np.generic]) -> SSAValue:
        """A constant of any size."""
        if value.size <= LARGEST_CONSTANT:
            return self.array(value)
        blob = BlobAttr.of(self.store.add(value), ELEMENTS[value.dtype], value.shape)
        return self(WeightOp(blob))

    def bytes_of(self, value: SSAValue) -> NDArray[np.uint8] | None:
        """The bytes of a constant or of a weight that the store has; None for any other value."""
        owner = value.owner
        if isinstance(owner, ConstantOp):
            return array_bytes(array_of(owner.value))
        if isinstance(owner, WeightOp) and owner.value.digest.data in self.store:
            return np.frombuffer(self.store.raw(owner.value.digest.data), np.uint8)
        return None

    def scalar(self, number: float, element: Attribute) -> SSAValue:
        """A constant without dims."""
        return self.array(np.array(number, dtype_of(element)))

    def binary(self, kind: BinaryKind, a: SSAValue, b: SSAValue | float) -> SSAValue:
        """A binary op; a number becomes a constant of the type of a."""
        rhs = b if isinstance(b, SSAValue) else self.scalar(b, element_of(a))
        return self(BinaryOp(kind, a, rhs))

    def reshape(self, x: SSAValue, dims: Sequence[Dim | int]) -> SSAValue:
        """X under other dims; x itself where they are its own.

        Raises:
            ValueError: Both are known and have different numbers of elements.
        """
        old, new = shape_of(x), tuple(Dim.of(d) for d in dims)
        counts = [prod(n for d in shape if (n := d.as_int()) is not None) for shape in (old, new)]
        known = all(d.as_int() is not None for d in (*old, *new))
        if known and counts[0] != counts[1]:
            raise ValueError(f"{counts[0]} elements are not {counts[1]}")
        return x if old == new else self(ReshapeOp(x, dims))

    def dims(self, contents: Sequence[Dim], shape: Sequence[Dim | int]) -> SSAValue:
        """An i64 tensor of dims: a constant where they are known, else counted from symbols."""
        known = [n for d in contents if (n := d.as_int()) is not None]
        if len(known) == len(contents):
            return self.reshape(self.array(np.array(known, np.int64)), shape)
        parts = [self(IotaOp(1, d)) for d in contents]
        return self.reshape(parts[0] if len(parts) == 1 else self(ConcatOp(parts, 0)), shape)

    @property
    def result_dims(self) -> tuple[Dim, ...]:
        """The dims of the operator's first result."""
        return dims_of(tensor_type(self.op.results[0]))


Converter = Callable[[OnnxOp, Emit], Sequence[SSAValue] | SSAValue | None]
"""Makes the first results of an operator from `mllm` ops; None where that is not possible.

An operator whose other results are used stays as it is.
"""


def contents(value: SSAValue | None) -> tuple[Dim, ...] | None:
    """The elements of a small integer tensor, where they are known, row by row."""
    if value is None:
        return None
    if (kind := ranked(value)) is not None and 0 in kind.get_shape():
        return ()
    array = constant_array(value)
    if array is not None and array.dtype.kind in "iub":
        return tuple(Dim.const(int(n)) for n in array.reshape(-1))
    recorded = value.owner.attributes.get(CONTENTS) if isinstance(value.owner, Operation) else None
    if not isinstance(recorded, DimsAttr) or any(d.unknown for d in recorded.data):
        return _counted(value)
    return recorded.data


def _counted(value: SSAValue) -> tuple[Dim, ...] | None:
    """The elements of what `Emit.dims` has made."""
    owner = value.owner
    if isinstance(owner, ReshapeOp):
        return contents(owner.x)
    if isinstance(owner, ConcatOp):
        parts = [contents(x) for x in owner.xs]
        return None if None in parts else tuple(d for p in parts if p is not None for d in p)
    if not isinstance(owner, IotaOp):
        return None
    count, step = shape_of(owner.result)[0].as_int(), owner.step.value.data
    if count is None or count > LARGEST_CONSTANT:
        return None
    return tuple(owner.start.data[0] + i * step for i in range(count))


def static(value: SSAValue | None) -> list[int] | None:
    """The integers of a small tensor, where all are known constants."""
    known = contents(value)
    numbers = [n for d in known or () if (n := d.as_int()) is not None]
    return numbers if known is not None and len(numbers) == len(known) else None


def is_symbolic_result(op: OnnxOp) -> tuple[Dim, ...] | None:
    """The contents of an operator's only result, where shape inference knows all of them."""
    results = op.results
    if len(results) != 1 or ranked(results[0]) is None or element_of(results[0]) != i64:
        return None
    return contents(results[0])
