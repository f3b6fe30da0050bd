"""What shape inference knows: types, symbolic dims, and the contents of small integer tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import IntegerType, TensorType, UnrankedTensorType, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.utils.hints import isa

from mllm_compiler.dialects.dims import UNKNOWN, Dim, combine, dims_of, tensor_of
from mllm_compiler.dialects.locations import location_name
from mllm_compiler.dialects.mllm import ConstantOp
from mllm_compiler.dialects.onnx_attributes import array_of_dense
from mllm_compiler.dialects.onnx_types import UnknownType, element_type
from mllm_compiler.errors import CompileError

if TYPE_CHECKING:
    from mllm_compiler.dialects.onnx_op import OnnxOp

LARGEST_CONTENTS: Final = 64
"""Elements of a tensor whose contents are followed."""

Dims = tuple[Dim, ...]


@dataclass(frozen=True)
class Known:
    """What is known of a value.

    Attributes:
        element: The element type of a tensor.
        dims: Its dims; None where not even the rank is known.
        contents: The elements of a small static integer (or truth value) tensor, row by row, each
            an expression over the symbols of the function's arguments, or unknown.
        type: The type of a value that is no tensor.
    """

    element: Attribute | None = None
    dims: Dims | None = None
    contents: Dims | None = None
    type: Attribute | None = None

    @property
    def rank(self) -> int | None:
        """The number of dims."""
        return None if self.dims is None else len(self.dims)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape, where all of it is static."""
        if self.dims is None:
            return None
        static = [n for d in self.dims if (n := d.as_int()) is not None]
        return tuple(static) if len(static) == len(self.dims) else None

    def grid(self) -> NDArray[np.object_] | None:
        """The contents as an array of dims."""
        if self.contents is None or self.shape is None:
            return None
        grid = np.empty(len(self.contents), dtype=object)
        grid[:] = self.contents
        return grid.reshape(self.shape)

    def as_type(self) -> Attribute:
        """The IR type."""
        if self.type is not None:
            return self.type
        if self.element is None:
            return UnknownType()
        if self.dims is None:
            return UnrankedTensorType(self.element)
        return tensor_of(self.element, self.dims)


def of_type(type: Attribute) -> Known:
    """What a type says."""
    if isa(type, TensorType[Attribute]):
        return Known(type.element_type, dims_of(type))
    element = element_type(type)
    if element is not None:
        return Known(element)
    return Known() if isinstance(type, UnknownType) else Known(type=type)


def tensor(element: Attribute | None, dims: Iterable[Dim | int] | None) -> Known:
    """A tensor of an element type and dims."""
    return Known(element, None if dims is None else tuple(Dim.of(d) for d in dims))


def of_grid(element: Attribute | None, grid: NDArray[np.object_]) -> Known:
    """A tensor whose contents are an array of dims."""
    contents: Dims | None = None
    if grid.size <= LARGEST_CONTENTS:
        flat = cast("list[Dim]", grid.reshape(-1).tolist())
        contents = None if flat and all(d.unknown for d in flat) else tuple(flat)
    return Known(element, tuple(Dim.const(n) for n in grid.shape), contents)


def vector(dims: Sequence[Dim]) -> Known:
    """A one-dimensional i64 tensor that holds dims."""
    contents = tuple(dims) if len(dims) <= LARGEST_CONTENTS else None
    return Known(i64, (Dim.const(len(dims)),), contents)


@dataclass
class Shapes:
    """The knowledge of one function.

    Attributes:
        inputs: The symbols of the function's arguments, in their order.
    """

    inputs: list[str]
    known: dict[SSAValue, Known] = field(default_factory=dict[SSAValue, Known])
    equal: dict[str, Dim] = field(default_factory=dict[str, Dim])

    def of(self, value: SSAValue | None) -> Known:
        """What is known of a value; an absent one is known to be nothing."""
        if value is None:
            return Known()
        found = self.known.get(value)
        if found is None:
            found = self.known[value] = _of_definition(value)
        return self.resolved(found) if self.equal else found

    def resolved(self, known: Known) -> Known:
        """The same with the symbols that were found equal to others replaced."""
        if not self.equal or (not known.dims and not known.contents):
            return known
        dims = known.dims and tuple(self.resolve(d) for d in known.dims)
        contents = known.contents and tuple(self.resolve(d) for d in known.contents)
        if dims == known.dims and contents == known.contents:
            return known
        return replace(known, dims=dims, contents=contents)

    def resolve(self, dim: Dim) -> Dim:
        """A dim with the symbols that were found equal to others replaced."""
        return dim.substitute(self.equal)

    def array(self, value: SSAValue | None) -> NDArray[Any] | None:
        """The value of a constant; of known contents too, as int64."""
        if value is None:
            return None
        if isinstance(value.owner, ConstantOp):
            return array_of_dense(value.owner.value)
        known = self.of(value)
        if known.contents is None or known.shape is None:
            return None
        numbers = [n for d in known.contents if (n := d.as_int()) is not None]
        if len(numbers) < len(known.contents):
            return None
        return np.array(numbers, np.int64).reshape(known.shape)

    def ints(self, value: SSAValue | None) -> list[int] | None:
        """The integers of a constant, flat."""
        array = self.array(value)
        return None if array is None else [int(n) for n in array.reshape(-1)]

    def equate(self, a: Dim, b: Dim, op: Operation) -> Dim:
        """Makes two dims equal, by replacing a symbol where they are not.

        Raises:
            CompileError: They cannot be equal.
        """
        a, b = self.resolve(a), self.resolve(b)
        if a == b or b.unknown:
            return a
        if a.unknown:
            return b
        if a.as_int() is not None and b.as_int() is not None:
            raise CompileError(
                "MLC-I015",
                f"'{op.name}' needs equal dimensions, but they are {a} and {b}",
                location=location_name(op),
                remedy="the model contradicts itself: check its input shapes, export it again",
            )
        self._solve(a - b)
        return self.resolve(a)

    def _solve(self, difference: Dim) -> None:
        """Replaces the symbol that is expressed best by the others: what is no input, then late."""
        candidates: list[tuple[bool, int, str, Dim]] = []
        for monomial, coefficient in difference.terms:
            name = monomial[0].name if len(monomial) == 1 else ""
            if not name or abs(coefficient) != 1:
                continue
            rest = difference - Dim.symbol(name) * coefficient
            value = -rest if coefficient == 1 else rest
            if name in value.symbols() or not is_nonnegative(value) or value == Dim():
                continue
            position = self.inputs.index(name) if name in self.inputs else -1
            # A past length is never expressed by others: caches start from it.
            late = -1 if "past" in name else position
            candidates.append((position < 0, late, name, value))
        if not candidates:
            return
        _, _, name, value = max(candidates, key=lambda c: c[:2])
        self.equal = {n: d.substitute({name: value}) for n, d in self.equal.items()}
        self.equal[name] = value


def _of_definition(value: SSAValue) -> Known:
    known = of_type(value.type)
    owner = value.owner
    if not isinstance(owner, ConstantOp):
        return known
    shape = known.shape
    if shape is None or prod(shape) > LARGEST_CONTENTS:
        return known
    if not isinstance(known.element, IntegerType):
        return known
    flat = array_of_dense(owner.value).reshape(-1)
    return replace(known, contents=tuple(Dim.const(int(n)) for n in flat))


def is_nonnegative(dim: Dim) -> bool:
    """Whether a dim is certainly not negative, its symbols not being so."""
    return not dim.unknown and all(c >= 0 for _, c in dim.terms)


def is_positive(dim: Dim) -> bool:
    """Whether a dim is certainly above zero, its symbols not being negative."""
    return is_nonnegative(dim) and any(not monomial for monomial, _ in dim.terms)


def product(dims: Iterable[Dim]) -> Dim:
    """The product of dims."""
    total = Dim.const(1)
    for dim in dims:
        total = total * dim
    return total


def smaller(a: Dim, b: Dim) -> Dim:
    """The smaller of two dims."""
    if is_nonnegative(b - a):
        return a
    return b if is_nonnegative(a - b) else combine("min", a, b)


def broadcast_dim(shapes: Shapes, a: Dim, b: Dim, op: Operation) -> Dim:
    """The extent of two that NumPy's rules stretch to each other."""
    m, n = a.as_int(), b.as_int()
    if m == 1:
        return b
    if n == 1 or a == b:
        return a
    if m is not None and n is not None:
        return shapes.equate(a, b, op)
    # An extent that is not 1 wins over a symbol: that is 1, or the same.
    if m is not None:
        return a
    if n is not None:
        return b
    return shapes.equate(a, b, op)


def broadcast(shapes: Shapes, op: Operation, all_dims: Sequence[Dims | None]) -> Dims | None:
    """The dims of operands that NumPy's rules stretch to each other."""
    result: Dims = ()
    for dims in all_dims:
        if dims is None:
            return None
        longer, shorter = (dims, result) if len(dims) >= len(result) else (result, dims)
        lead = len(longer) - len(shorter)
        result = longer[:lead] + tuple(
            broadcast_dim(shapes, x, y, op) for x, y in zip(longer[lead:], shorter, strict=True)
        )
    return result


def normal_axis(axis: int, rank: int) -> int:
    """An axis counted from the front."""
    return axis + rank if axis < 0 else axis


ShapeFunction = Callable[["OnnxOp", Shapes], Sequence[Known]]
"""What is known of the results of an operator, by position."""

__all__ = [
    "UNKNOWN",
    "Dim",
    "Dims",
    "Known",
    "ShapeFunction",
    "Shapes",
    "broadcast",
    "broadcast_dim",
    "is_nonnegative",
    "is_positive",
    "normal_axis",
    "of_grid",
    "of_type",
    "product",
    "smaller",
    "tensor",
    "vector",
]
