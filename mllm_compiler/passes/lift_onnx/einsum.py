"""`Einsum` as transposes, sums and products of matrices.

Operands are contracted from the left, two at a time: axes that only one of them has and nobody
reads are summed first, shared axes that are read later stay in front as a batch, and the others are
what the product sums over. So `bthd,bshd->bhts` is the product of queries and transposed keys, and
`btd,dhk->bthk` one with a weight.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.ir import SSAValue

from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import (
    BinaryKind,
    MatmulOp,
    ReduceKind,
    ReduceOp,
    SliceOp,
    TransposeOp,
)
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.dialects.types import rank_of, shape_of
from mllm_compiler.passes.equations import read_equation
from mllm_compiler.passes.lift_onnx.emit import Converter, Emit


@dataclass(frozen=True)
class Term:
    """A value and the names of its axes, a character each."""

    value: SSAValue
    axes: str

    def dims(self, axes: Collection[str]) -> list[Dim]:
        """The extents of some axes."""
        return [shape_of(self.value)[self.axes.index(a)] for a in axes]


def _einsum(op: OnnxOp, emit: Emit) -> SSAValue | None:
    operands = list(op.operands)
    equation = read_equation(str(op.attribute("equation")), [rank_of(x) for x in operands])
    if equation is None or any(d.unknown for x in operands for d in shape_of(x)):
        return None
    read = [_distinct(emit, Term(x, t)) for x, t in zip(operands, equation.terms, strict=True)]
    terms = [term for term in read if term is not None]
    if len(terms) != len(read):
        return None
    total = terms[0]
    for at, term in enumerate(terms[1:], start=2):
        later = {*equation.output, *(a for t in terms[at:] for a in t.axes)}
        joined = _contracted(emit, _summed(emit, total, {*later, *term.axes}), term, later)
        if joined is None:
            return None
        total = joined
    return _in_order(emit, _summed(emit, total, set(equation.output)), equation.output)


def _distinct(emit: Emit, term: Term) -> Term | None:
    """A term whose names differ: of an axis that stands twice the diagonal is taken."""
    twice = next((a for a in term.axes if term.axes.count(a) > 1), None)
    if twice is None:
        return term
    first, second = [at for at, a in enumerate(term.axes) if a == twice][:2]
    size = shape_of(term.value)[first].as_int()
    if size is None or shape_of(term.value)[second].as_int() != size:
        return None
    rest = [at for at in range(len(term.axes)) if at not in (first, second)]
    turned = emit(TransposeOp(term.value, [*rest, first, second]))
    lead = shape_of(turned)[:-2]
    flat = emit.reshape(turned, [*lead, size * size])
    steps = [*[1] * len(lead), size + 1]
    diagonal = emit(SliceOp(flat, [0] * len(steps), [*lead, size], steps))
    return _distinct(emit, Term(diagonal, "".join(term.axes[at] for at in rest) + twice))


def _summed(emit: Emit, term: Term, kept: Collection[str]) -> Term:
    """A term without the axes that nobody reads."""
    gone = [at for at, a in enumerate(term.axes) if a not in kept]
    if not gone:
        return term
    value = emit(ReduceOp(ReduceKind.SUM, term.value, gone, keepdims=False))
    return Term(value, "".join(a for a in term.axes if a in kept))


def _contracted(emit: Emit, a: Term, b: Term, later: Collection[str]) -> Term | None:
    """The product of two terms; shared axes that are not read later are summed over."""
    b = _summed(emit, b, {*later, *a.axes})
    shared = [axis for axis in a.axes if axis in b.axes]
    batch = "".join(axis for axis in shared if axis in later)
    inner = "".join(axis for axis in shared if axis not in later)
    if not inner:
        return _outer(emit, a, b)
    if a.dims(inner) != b.dims(inner):
        return None
    if not batch and len(b.axes) > len(a.axes):
        a, b = b, a
    rows, columns = ("".join(axis for axis in term.axes if axis not in shared) for term in (a, b))
    k, n, m = (_size(t.dims(axes)) for t, axes in ((a, inner), (b, columns), (a, rows)))
    left = _in_order(emit, a, batch + rows + inner)
    many = [m] if batch or not rows else a.dims(rows)
    x = emit.reshape(left, [*a.dims(batch), *many, k])
    if b.axes == columns + inner:
        w = emit(TransposeOp(emit.reshape(b.value, [n, k]), (1, 0)))
    else:
        w = emit.reshape(_in_order(emit, b, batch + inner + columns), [*b.dims(batch), k, n])
    y = emit(MatmulOp(x, w))
    lead = shape_of(y)[: len(batch)]
    value = emit.reshape(y, [*lead, *a.dims(rows), *b.dims(columns)])
    return Term(value, batch + rows + columns)


def _outer(emit: Emit, a: Term, b: Term) -> Term:
    """A product that sums over nothing: the axes that a term lacks are 1."""
    axes = a.axes + "".join(axis for axis in b.axes if axis not in a.axes)
    values: list[SSAValue] = []
    for term in (a, b):
        ordered = [axis for axis in axes if axis in term.axes]
        dims = [term.dims(axis)[0] if axis in term.axes else Dim.const(1) for axis in axes]
        values.append(emit.reshape(_in_order(emit, term, ordered), dims))
    return Term(emit.binary(BinaryKind.MUL, values[0], values[1]), axes)


def _in_order(emit: Emit, term: Term, axes: Sequence[str]) -> SSAValue:
    """The value with its axes in an order."""
    order = [term.axes.index(axis) for axis in axes]
    return term.value if order == sorted(order) else emit(TransposeOp(term.value, order))


def _size(dims: Sequence[Dim]) -> Dim:
    return prod(dims, start=Dim.const(1))


CONVERTERS: dict[str, Converter] = {"Einsum": _einsum}
"""Operator name to converter."""
