"""`canonical-form`: one spelling for what can be spelled in many ways; exact.

    %0 = mllm.transpose %x {perm = array<i64: 0, 2, 1>} : (tensor<2x3x4xf32>) -> tensor<2x4x3xf32>
    %1 = mllm.transpose %0 {perm = array<i64: 0, 2, 1>} : (tensor<2x4x3xf32>) -> tensor<2x3x4xf32>
    %2 = mllm.binary mul %one, %1 : (tensor<f32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>

becomes %x. In canonical form no op is an identity, reshapes and transposes do not follow one
another, nothing empty is joined, a transpose that only moves extents of 1 is a reshape, a constant
that is reshaped has that shape by itself, constants of commutative ops stand on the right, no
broadcast feeds an elementwise op that would broadcast by itself, and powers and quotients with an
own name have it (`pow x, 2` is `mul x, x`, `div 1, (sqrt x)` is `rsqrt x`). A gather whose indices
count all rows in turn is a reshape.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, i1
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import (
    BinaryKind,
    BinaryOp,
    BlobAttr,
    BroadcastOp,
    CastOp,
    CompareOp,
    ConcatOp,
    ConstantOp,
    GatherOp,
    IotaOp,
    MatmulOp,
    ReshapeOp,
    SelectOp,
    SliceOp,
    TransposeOp,
    UnaryKind,
    UnaryOp,
    WeightOp,
    constant_array,
    constant_scalar,
)
from mllm_compiler.dialects.mllm.contract import broadcast_dims
from mllm_compiler.dialects.types import element_of, is_float, is_integer, shape_of
from mllm_compiler.passes.counted_rows import gathered_in_order
from mllm_compiler.passes.matching import made_by, static_shape, unary
from mllm_compiler.passes.rewrite import On, rewrite, substitute

COMMUTATIVE = frozenset(
    {BinaryKind.ADD, BinaryKind.MUL, BinaryKind.MIN, BinaryKind.MAX, BinaryKind.AND, BinaryKind.OR}
)
"""Binary kinds whose operands may change places."""

NEUTRAL = {BinaryKind.ADD: 0.0, BinaryKind.SUB: 0.0, BinaryKind.MUL: 1.0, BinaryKind.DIV: 1.0}
"""The right operand that leaves the left one as it is (x + 0 turns -0 into 0)."""


def _take(rewriter: PatternRewriter, op: Operation, value: SSAValue) -> None:
    """Replaces an op by a value that equals its result, where the types are spelled alike."""
    if value.type == op.results[0].type:
        rewriter.replace(op, [], [value])


def _reshape(op: ReshapeOp, rewriter: PatternRewriter) -> None:
    if shape_of(op.x) == shape_of(op.result) and not _unknown(op.x):
        _take(rewriter, op, op.x)
        return
    inner = made_by(op.x, ReshapeOp)
    if inner is not None:
        substitute(rewriter, op, ReshapeOp(inner.x, shape_of(op.result)))
        return
    shape, array, weight = static_shape(op.result), constant_array(op.x), made_by(op.x, WeightOp)
    if shape is not None and array is not None:
        substitute(rewriter, op, ConstantOp.of(array.reshape(shape)))
    elif shape is not None and weight is not None:
        blob = BlobAttr.of(weight.value.digest.data, weight.value.element, shape)
        name = weight.weight_name
        substitute(rewriter, op, WeightOp(blob, name.data if name is not None else None))


def _unknown(value: SSAValue) -> bool:
    return any(d.unknown for d in shape_of(value))


def _transpose(op: TransposeOp, rewriter: PatternRewriter) -> None:
    perm = op.permutation
    if perm == tuple(range(len(perm))):
        _take(rewriter, op, op.x)
        return
    inner = made_by(op.x, TransposeOp)
    if inner is not None:
        before = inner.permutation
        substitute(rewriter, op, TransposeOp(inner.x, [before[p] for p in perm]))
        return
    dims = shape_of(op.x)
    moved = [p for p in perm if dims[p].as_int() != 1]
    if moved == sorted(moved) and sum(d.unknown for d in dims) <= 1:
        substitute(rewriter, op, ReshapeOp(op.x, shape_of(op.result)))


def _cast(op: CastOp, rewriter: PatternRewriter) -> None:
    if element_of(op.x) == element_of(op.result):
        _take(rewriter, op, op.x)


def _concat(op: ConcatOp, rewriter: PatternRewriter) -> None:
    if len(op.xs) == 1:
        _take(rewriter, op, op.xs[0])
        return
    axis = op.axis.value.data
    filled = [x for x in op.xs if shape_of(x)[axis].as_int() != 0]
    if filled and len(filled) < len(op.xs):
        substitute(rewriter, op, ConcatOp(filled, axis))


def _slice(op: SliceOp, rewriter: PatternRewriter) -> None:
    whole = shape_of(op.x) == shape_of(op.result) and not _unknown(op.x)
    if whole and all(s.as_int() == 0 for s in op.starts.data) and set(op.step_list) <= {1}:
        _take(rewriter, op, op.x)


def _broadcast(op: BroadcastOp, rewriter: PatternRewriter) -> None:
    if shape_of(op.x) == shape_of(op.result) and not _unknown(op.x):
        _take(rewriter, op, op.x)
        return
    inner = made_by(op.x, BroadcastOp)
    if inner is not None:
        substitute(rewriter, op, BroadcastOp(inner.x, shape_of(op.result)))


def _constant_to_the_right(op: BinaryOp, rewriter: PatternRewriter) -> None:
    if op.kind.data not in COMMUTATIVE:
        return
    if constant_array(op.a) is not None and constant_array(op.b) is None:
        substitute(rewriter, op, BinaryOp(op.kind.data, op.b, op.a))


def _neutral(op: BinaryOp, rewriter: PatternRewriter) -> None:
    number, truths = constant_scalar(op.b), constant_array(op.b)
    neutral = number is not None and number == NEUTRAL.get(op.kind.data)
    if truths is not None and element_of(op.b) == i1:
        neutral = op.kind.data is BinaryKind.AND and bool(truths.all())
    if neutral:
        _take(rewriter, op, op.a)


def _power(op: BinaryOp, rewriter: PatternRewriter) -> None:
    number = constant_scalar(op.b) if op.kind.data is BinaryKind.POW else None
    if number not in (0.5, 1.0, 2.0) or shape_of(op.a) != shape_of(op.result):
        return
    if number == 2.0:
        substitute(rewriter, op, BinaryOp(BinaryKind.MUL, op.a, op.a))
    elif number == 0.5:
        substitute(rewriter, op, UnaryOp(UnaryKind.SQRT, op.a))
    else:
        _take(rewriter, op, op.a)


def _reciprocal(op: BinaryOp, rewriter: PatternRewriter) -> None:
    if op.kind.data is not BinaryKind.DIV or constant_scalar(op.a) != 1.0:
        return
    if is_float(element_of(op.b)) and shape_of(op.b) == shape_of(op.result):
        substitute(rewriter, op, UnaryOp(UnaryKind.RECIPROCAL, op.b))


def _rsqrt(op: UnaryOp, rewriter: PatternRewriter) -> None:
    if op.kind.data is not UnaryKind.RECIPROCAL:
        return
    root = unary(op.x, UnaryKind.SQRT)
    if root is not None:
        substitute(rewriter, op, UnaryOp(UnaryKind.RSQRT, root))


def _counted_sum(op: BinaryOp, rewriter: PatternRewriter) -> None:
    """`add (iota n), (iota 1 from e)` counts from e on, and so does `sub`."""
    if op.kind.data not in (BinaryKind.ADD, BinaryKind.SUB):
        return
    for row, one in ((op.a, op.b), (op.b, op.a)):
        counted, offset = _counted(row), _symbol(one)
        if counted is None or offset is None or shape_of(row) != shape_of(op.result):
            continue
        if op.kind.data is BinaryKind.SUB and row is op.b:
            continue
        sign = -1 if op.kind.data is BinaryKind.SUB else 1
        start, step = counted.start.data[0] + offset * sign, counted.step.value.data
        made = IotaOp(shape_of(counted.result)[0], start, step)
        substitute(rewriter, op, made, ReshapeOp(made.result, shape_of(op.result)))
        return


def _counted(value: SSAValue) -> IotaOp | None:
    inner = made_by(value, ReshapeOp)
    return made_by(inner.x if inner is not None else value, IotaOp)


def _symbol(value: SSAValue) -> Dim | None:
    """The dim that an integer tensor of one element holds."""
    number = constant_scalar(value) if is_integer(element_of(value)) else None
    if number is not None and all(d.as_int() == 1 for d in shape_of(value)):
        return Dim.const(int(number))
    counted = _counted(value)
    if counted is None or shape_of(counted.result)[0].as_int() != 1:
        return None
    return counted.start.data[0]


def _broadcast_operand(op: Operation, rewriter: PatternRewriter) -> None:
    """An elementwise op broadcasts by itself."""
    operands = [
        inner.x if (inner := made_by(v, BroadcastOp)) is not None else v for v in op.operands
    ]
    for at, (old, new) in enumerate(zip(op.operands, operands, strict=True)):
        if old is new:
            continue
        tried = [*op.operands[:at], new, *op.operands[at + 1 :]]
        if broadcast_dims(*(shape_of(v) for v in tried)) == shape_of(op.results[0]):
            made = type(op).create(
                operands=tried,
                result_types=[r.type for r in op.results],
                properties=op.properties,
                attributes=op.attributes,
            )
            rewriter.replace(op, made)
            return


def _outer_product(op: MatmulOp, rewriter: PatternRewriter) -> None:
    """A product over one element is a product that broadcasts."""
    if shape_of(op.a)[-1].as_int() == 1 and shape_of(op.b)[-2].as_int() == 1:
        substitute(rewriter, op, BinaryOp(BinaryKind.MUL, op.a, op.b))


SHAPE_PATTERNS = (
    On(ReshapeOp, _reshape),
    On(TransposeOp, _transpose),
    On(CastOp, _cast),
    On(ConcatOp, _concat),
    On(SliceOp, _slice),
    On(BroadcastOp, _broadcast),
)
"""Patterns of ops that move elements; passes that insert such ops run them too."""

CANONICAL = (
    *SHAPE_PATTERNS,
    On(BinaryOp, _constant_to_the_right),
    On(BinaryOp, _neutral),
    On(BinaryOp, _power),
    On(BinaryOp, _reciprocal),
    On(UnaryOp, _rsqrt),
    On(BinaryOp, _counted_sum),
    On(BinaryOp, _broadcast_operand),
    On(CompareOp, _broadcast_operand),
    On(SelectOp, _broadcast_operand),
    On(MatmulOp, _outer_product),
    On(GatherOp, gathered_in_order),
)
"""Every pattern."""


@dataclass(frozen=True)
class CanonicalForm(ModulePass):
    """Brings a module into canonical form."""

    name = "canonical-form"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites to a fixpoint."""
        rewrite(op, *CANONICAL)
