"""A graph whose symbols become sizes, and what tells its real elements from padding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Final

import numpy as np
from xdsl.dialects.builtin import i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue
from xdsl.rewriter import Rewriter

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.dims import Atom, Dim, tensor_of
from mllm_compiler.dialects.locations import named
from mllm_compiler.dialects.mllm import BinaryKind, CompareKind
from mllm_compiler.dialects.types import dtype_of, element_of, ranked, shape_of
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.graphs import block_of, location_of

LENGTH: Final = "length."
"""What the argument that holds the real size of a symbol is called, before the symbol."""

ATOMS: Final = {
    "floordiv": BinaryKind.DIV,
    "mod": BinaryKind.MOD,
    "min": BinaryKind.MIN,
    "max": BinaryKind.MAX,
}


class Padded:
    """A graph while its symbols become sizes; all values get static types at once.

    Where the real elements of an axis stand is a matter of its dim alone, as it was before: they
    start at `offset(dim)`, and there are `dim` of them. The padding of a symbol stands behind them,
    that of a symbol of `left` before them, so that along past + new tokens nothing is between.

    Args:
        graph: The graph, which rules rewrite in place.
        sizes: The size of each symbol.
        left: The symbols that are padded before their elements.
    """

    def __init__(self, graph: FuncOp, sizes: Mapping[str, int], left: frozenset[str]) -> None:
        self.graph, self.sizes = graph, sizes
        self.lengths: dict[str, SSAValue] = {}
        self._static = {symbol: Dim.const(size) for symbol, size in sizes.items()}
        self._left = {symbol: Dim.const(sizes[symbol]) for symbol in left}
        self._dims: dict[SSAValue, tuple[Dim, ...]] = {}
        self._made: dict[tuple[object, ...], SSAValue] = {}
        self._last: Operation | None = None
        block = block_of(graph)
        for value in [*block.args, *(r for op in block.ops for r in op.results)]:
            self._retype(value)

    def dims(self, value: SSAValue) -> tuple[Dim, ...]:
        """The dims of a value before symbols became sizes."""
        return self._dims.get(value) or shape_of(value)

    def extent(self, dim: Dim) -> int:
        """The padded extent of a dim."""
        return dim.evaluate(self.sizes)

    def offset(self, dim: Dim) -> Dim:
        """How many elements of padding stand before the real ones."""
        return dim.substitute(self._left) - dim

    def insert(self, op: Operation, before: Operation) -> SSAValue:
        """Puts an op before another, with its location; the answer is its result."""
        op.location = before.location
        block_of(self.graph).insert_op_before(op, before)
        return op.results[0]

    def put(self, op: Operation, before: Operation, dims: tuple[Dim, ...]) -> SSAValue:
        """Inserts an op whose result has these dims, padded as theirs are."""
        value = self.insert(op, before)
        self._dims[value] = dims
        return value

    def replace(self, op: Operation, *values: SSAValue) -> None:
        """Lets values take the place of an op's results."""
        for result, value in zip(op.results, values, strict=True):
            self._dims[value] = self.dims(result)
            result.replace_all_uses_with(value)
        op.detach()
        op.erase()

    def length(self, dim: Dim) -> SSAValue:
        """The value of a dim when the graph runs, [1] of i64."""
        return self._once(("length", dim), lambda: self._sum(dim))

    def index(self, extent: int) -> SSAValue:
        """The numbers from 0, [extent] of i64."""
        return self._once(("index", extent), lambda: self._top(mllm.IotaOp(extent)))

    def scalar(self, value: float, element: Attribute) -> SSAValue:
        """A constant without axes."""
        array = np.asarray(value, dtype_of(element))
        made = self._once(("scalar", value, element), lambda: self._top(mllm.ConstantOp.of(array)))
        return made

    def mask(self, dim: Dim) -> SSAValue:
        """Which elements along a dim are real, [extent] of i1."""
        return self._once(("mask", dim), lambda: self._inside(dim))

    def filled(
        self, value: SSAValue, number: float, before: Operation, axes: tuple[int, ...] | None = None
    ) -> SSAValue:
        """A value with a number in its padding along some axes, all where none are named."""
        dims = self.dims(value)
        if number == 0 and isinstance(value, BlockArgument):
            return value  # The runtime pads with zeros.
        for axis in range(len(dims)) if axes is None else axes:
            if not dims[axis].symbols():
                continue
            spread = [self.extent(d) if i == axis else 1 for i, d in enumerate(dims)]
            mask = self.insert(mllm.ReshapeOp(self.mask(dims[axis]), spread), before)
            filler = self.scalar(number, element_of(value))
            value = self.put(mllm.SelectOp(mask, value, filler), before, dims)
        return value

    @staticmethod
    def refusal(op: Operation, why: str) -> CompileError:
        """The error of an op that has no padded form."""
        return CompileError(
            "MLC-P002",
            f"'{op.name}' cannot be padded: {why}",
            location=location_of(op),
            remedy="fix the dimension with --dim NAME=8, or leave its buckets out",
        )

    def _retype(self, value: SSAValue) -> None:
        type = ranked(value)
        if type is None or not any(d.symbols() for d in shape_of(value)):
            return
        dims = shape_of(value)
        static = tensor_of(type.element_type, [d.substitute(self._static) for d in dims])
        self._dims[Rewriter.replace_value_with_new_type(value, static)] = dims

    def _once(self, key: tuple[object, ...], make: Callable[[], SSAValue]) -> SSAValue:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _top(self, op: Operation) -> SSAValue:
        """Puts an op before all that the graph had, behind those put there earlier."""
        op.location = named("bucket-shapes")
        block, first = block_of(self.graph), block_of(self.graph).first_op
        assert first is not None
        if self._last is None:
            block.insert_op_before(op, first)
        else:
            block.insert_op_after(op, self._last)
        self._last = op
        return op.results[0]

    def _binary(self, kind: BinaryKind, a: SSAValue, b: SSAValue) -> SSAValue:
        return self._top(mllm.BinaryOp(kind, a, b))

    def _number(self, value: int) -> SSAValue:
        array = np.array([value], np.int64)
        return self._once(("number", value), lambda: self._top(mllm.ConstantOp.of(array)))

    def _sum(self, dim: Dim) -> SSAValue:
        terms: list[SSAValue] = []
        for monomial, coefficient in dim.terms:
            factors = [self._atom(atom) for atom in monomial]
            if coefficient != 1 or not factors:
                factors.append(self._number(coefficient))
            terms.append(reduce(lambda a, b: self._binary(BinaryKind.MUL, a, b), factors))
        if not terms:
            return self._number(0)
        return reduce(lambda a, b: self._binary(BinaryKind.ADD, a, b), terms)

    def _atom(self, atom: Atom) -> SSAValue:
        if atom.op:
            assert atom.lhs is not None
            assert atom.rhs is not None
            return self._binary(ATOMS[atom.op], self.length(atom.lhs), self.length(atom.rhs))
        if atom.name not in self.lengths:
            block = block_of(self.graph)
            self.lengths[atom.name] = block.insert_arg(tensor_of(i64, [1]), len(block.args))
        return self.lengths[atom.name]

    def _inside(self, dim: Dim) -> SSAValue:
        index, first = self.index(self.extent(dim)), self.offset(dim)
        end, parts = first + dim, list[SSAValue]()
        if first != Dim():
            parts.append(self._top(mllm.CompareOp(CompareKind.GE, index, self.length(first))))
        if end.as_int() is None:
            parts.append(self._top(mllm.CompareOp(CompareKind.LT, index, self.length(end))))
        return reduce(lambda a, b: self._binary(BinaryKind.AND, a, b), parts)
