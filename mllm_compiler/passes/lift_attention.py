"""`lift-attention`: softmax(scale q k^T + bias) v becomes `mllm.attention`; tolerance 1e-5.

    %0 = mllm.matmul %q, %kt : (tensor<1x4x3x8xf32>, tensor<1x4x8x5xf32>) -> tensor<1x4x3x5xf32>
    %1 = mllm.binary mul %0, %scale : (tensor<1x4x3x5xf32>, tensor<f32>) -> tensor<1x4x3x5xf32>
    %2 = mllm.binary add %1, %bias : (..., tensor<1x1x3x5xf32>) -> tensor<1x4x3x5xf32>
    %3 = mllm.softmax %2 {axis = 3 : i64} : (tensor<1x4x3x5xf32>) -> tensor<1x4x3x5xf32>
    %4 = mllm.matmul %3, %v : (tensor<1x4x3x5xf32>, tensor<1x4x5x8xf32>) -> tensor<1x4x3x8xf32>

becomes, around transposes and reshapes that bring heads behind tokens and back,

    %4 = mllm.attention %q, %k, %v bias(%bias : tensor<1x1x3x5xf32>)
      {heads = 4 : i64, kv_heads = 4 : i64, scale = ...}
      : (tensor<1x3x32xf32>, tensor<1x5x32xf32>, tensor<1x5x32xf32>) -> tensor<1x3x32xf32>

The scale may stand on q, on k or on the scores; keys and values that are repeated for groups of
heads are read once; a cache keeps its layout. Zeros in place of a softmax over no key are left out
where the graph computes its mask, since a query then sees itself. Batch and heads may be one axis
(`folded_heads.py`); a product of rank 3 that never had heads is attention with one. `lift-masks`
reads the bias afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import (
    AttentionOp,
    BinaryKind,
    BinaryOp,
    BroadcastOp,
    ConstantOp,
    KvAppendOp,
    MatmulOp,
    ReshapeOp,
    SelectOp,
    SoftmaxOp,
    TransposeOp,
    UnaryKind,
    constant_scalar,
)
from mllm_compiler.dialects.types import dtype_of, element_of, is_float, rank_of, shape_of
from mllm_compiler.passes.canonical_form import SHAPE_PATTERNS
from mllm_compiler.passes.folded_heads import FOLDED
from mllm_compiler.passes.matching import (
    MOST_STEPS,
    binary,
    made_by,
    scaled,
    unary,
    with_scalar,
)
from mllm_compiler.passes.rewrite import On, retype, rewrite, substitute

EXCLUDED = -1e4
"""A score that is at most this is that of an excluded key."""


@dataclass(frozen=True)
class Selection:
    """Scores that are kept where a condition holds, or where it does not.

    Attributes:
        condition: [*, *, T, S].
        low: What stands where they are not kept.
        keeps: Whether they are kept where the condition is true.
    """

    condition: SSAValue
    low: SSAValue
    keeps: bool


@dataclass(frozen=True)
class Scores:
    """The scores of an attention.

    Attributes:
        q: [B, H, T, D].
        kt: [B, H, D, S].
        scale: The factor of the product.
        parts: What is added or excluded, innermost first.
    """

    q: SSAValue
    kt: SSAValue
    scale: float
    parts: tuple[SSAValue | Selection, ...] = ()


def _scores(value: SSAValue) -> Scores | None:
    """Reads the operand of the softmax, from the outside in."""
    parts: list[SSAValue | Selection] = []
    while (found := _product(value)) is None:
        layer = _layer(value)
        if layer is None or not layer[1].has_one_use() or len(parts) == MOST_STEPS:
            return None
        parts.append(layer[0])
        value = layer[1]
    matmul, scale = found
    (q, a), (kt, b) = scaled(matmul.a), scaled(matmul.b)
    return Scores(q, kt, scale * a * b, tuple(reversed(parts)))


def _product(value: SSAValue) -> tuple[MatmulOp, float] | None:
    inner, scale = scaled(value)
    matmul = made_by(inner, MatmulOp)
    return (matmul, scale) if matmul is not None and inner.has_one_use() else None


def _layer(value: SSAValue) -> tuple[SSAValue | Selection, SSAValue] | None:
    """What was last added to scores, or excluded from them, and the scores before."""
    select, pair = made_by(value, SelectOp), binary(value, BinaryKind.ADD)
    if select is not None:
        return _selection(select)
    for scores, other in (pair, pair[::-1]) if pair is not None else ():
        if _has_product(scores):
            return other, scores
    return None


def _has_product(value: SSAValue) -> bool:
    """Whether a value is made from a product by sums and selections that nothing else reads."""
    pending, steps = [value], 0
    while pending and steps < MOST_STEPS:
        steps += 1
        value = pending.pop()
        if not value.has_one_use():
            continue
        if _product(value) is not None:
            return True
        select = made_by(value, SelectOp)
        selection = _selection(select) if select is not None else None
        pending += binary(value, BinaryKind.ADD) or ()
        pending += [selection[1]] if selection is not None else []
    return False


def _selection(op: SelectOp) -> tuple[Selection, SSAValue] | None:
    """The condition and the score of an excluded key; then the scores."""
    for scores, other, keeps in ((op.a, op.b, True), (op.b, op.a, False)):
        number = constant_scalar(other)
        if number is not None and number <= EXCLUDED and rank_of(op.c) == 4:
            return Selection(op.c, other, keeps), scores
    return None


def _unguarded(value: SSAValue) -> SSAValue:
    """Probabilities without the zeros that stand where a softmax over no key is not a number."""
    guard = made_by(value, SelectOp)
    if guard is None or constant_scalar(guard.a) != 0.0:
        return value
    return guard.b if unary(guard.c, UnaryKind.ISNAN) is guard.b else value


def _may_see_nothing(scores: Scores) -> bool:
    """Whether a query may have no key: a bias is given, and not computed by the graph."""
    return any(isinstance(part, BlockArgument) for part in scores.parts)


@dataclass
class Builder:
    """Collects the ops that replace an attention."""

    made: list[Operation] = field(default_factory=list[Operation])

    def __call__(self, new: Operation) -> SSAValue:
        """Adds an op and answers with its first result."""
        self.made.append(new)
        return new.results[0]

    def tokens(self, x: SSAValue) -> SSAValue:
        """[B, H, T, D] -> [B, T, H*D]."""
        batch, heads, length, size = shape_of(x)
        apart = self(TransposeOp(x, (0, 2, 1, 3)))
        return self(ReshapeOp(apart, (batch, length, heads * size)))

    def bias(self, value: SSAValue, like: SSAValue) -> SSAValue:
        """A bias of rank 4, all of whose last two dims are there."""
        dims = (*[Dim.const(1)] * (4 - rank_of(value)), *shape_of(value))
        shaped = value if rank_of(value) == 4 else self(ReshapeOp(value, dims))
        whole = (*dims[:2], *shape_of(like)[2:])
        return shaped if whole == dims else self(BroadcastOp(shaped, whole))

    def allowed(self, part: Selection) -> SSAValue:
        """A bias of 0 where keys are seen and of the lowest score elsewhere."""
        zero = self(ConstantOp.of(np.zeros((), dtype_of(element_of(part.low)))))
        sides = (zero, part.low) if part.keeps else (part.low, zero)
        return self(SelectOp(part.condition, *sides))

    def total(self, parts: Sequence[SSAValue], like: SSAValue) -> SSAValue | None:
        """The sum of biases; None where there is none."""
        shaped = [self.bias(part, like) for part in parts]
        total = shaped[0] if shaped else None
        for part in shaped[1:]:
            assert total is not None
            total = self(BinaryOp(BinaryKind.ADD, total, part))
        return total


def repeated(value: SSAValue) -> SSAValue:
    """[B, Hkv, S, D], where the value [B, H, S, D] repeats each of its heads in turn."""
    outer = made_by(value, ReshapeOp)
    wide = made_by(outer.x, BroadcastOp) if outer is not None else None
    inner = made_by(wide.x, ReshapeOp) if wide is not None else None
    if wide is None or inner is None or rank_of(inner.x) != 4 or rank_of(wide.result) != 5:
        return value
    batch, heads, length, size = shape_of(inner.x)
    apart = (batch, heads, Dim.const(1), length, size)
    group = shape_of(wide.result)[2]
    same = shape_of(inner.result) == apart
    same = same and shape_of(wide.result) == (batch, heads, group, length, size)
    return inner.x if same and shape_of(value)[1] == heads * group else value


def is_cache(value: SSAValue) -> bool:
    """Whether a value [B, Hkv, S, D] is a cache: an argument, or what is appended to one."""
    return isinstance(value, BlockArgument) or made_by(value, KvAppendOp) is not None


def _attention(op: MatmulOp, rewriter: PatternRewriter) -> None:
    probabilities = _unguarded(op.a)
    softmax = made_by(probabilities, SoftmaxOp)
    if softmax is None or not op.a.has_one_use() or rank_of(op.result) != 4:
        return
    if softmax.axis.value.data != 3 or not is_float(element_of(op.result)):
        return
    scores = _scores(softmax.x)
    if scores is None or not _fits(scores, op.b):
        return
    if probabilities is not op.a and _may_see_nothing(scores):
        return
    build = Builder()
    batch, heads, queries, size = shape_of(op.result)
    key = _keys(build, scores.kt)
    value = repeated(op.b)
    counts = {shape_of(v)[1].as_int() for v in (key, value)}
    kv_heads = counts.pop()
    if counts or kv_heads is None or (heads.as_int() or 0) % kv_heads:
        return
    if not is_cache(key) or not is_cache(value):
        key, value = build.tokens(key), build.tokens(value)
    made = AttentionOp(
        build.tokens(scores.q),
        key,
        value,
        heads=heads.as_int() or 0,
        kv_heads=kv_heads,
        scale=scores.scale,
        bias=_bias(build, scores, softmax.x),
    )
    flat = build(made)
    apart = build(ReshapeOp(flat, (batch, queries, heads, size)))
    build(TransposeOp(apart, (0, 2, 1, 3)))
    substitute(rewriter, op, *build.made)


def _keys(build: Builder, kt: SSAValue) -> SSAValue:
    """The keys [B, Hkv, S, D] of which kt is the transpose."""
    turned = made_by(kt, TransposeOp)
    if turned is not None and turned.permutation == (0, 1, 3, 2):
        return repeated(turned.x)
    return build(TransposeOp(kt, (0, 1, 3, 2)))


def _fits(scores: Scores, v: SSAValue) -> bool:
    """Whether the operands have batch and heads, and no dim is unknown or mixed."""
    if {rank_of(x) for x in (scores.q, scores.kt, v)} != {4}:
        return False
    heads = [shape_of(x)[1].as_int() for x in (scores.q, scores.kt, v)]
    known = not any(d.unknown for x in (scores.q, scores.kt, v) for d in shape_of(x))
    return known and None not in heads and len(set(heads)) == 1


def _bias(build: Builder, scores: Scores, like: SSAValue) -> SSAValue | None:
    """The sum of all that is added to the scores."""
    parts = [build.allowed(p) if isinstance(p, Selection) else p for p in scores.parts]
    return build.total(parts, like)


def _sink_scale(op: ReshapeOp | TransposeOp, rewriter: PatternRewriter) -> None:
    """A constant factor passes what moves elements, so that it comes to stand on q or k."""
    pair = with_scalar(op.x, BinaryKind.MUL)
    if pair is None or not op.x.has_one_use():
        return
    if isinstance(op, ReshapeOp):
        moved: ReshapeOp | TransposeOp = ReshapeOp(pair[0], shape_of(op.result))
    else:
        moved = TransposeOp(pair[0], op.permutation)
    scalar = ConstantOp.of(np.array(pair[1], dtype_of(element_of(pair[0]))))
    retype(moved, op)
    substitute(rewriter, op, moved, scalar, BinaryOp(BinaryKind.MUL, moved.result, scalar.result))


def _one_head(op: MatmulOp, rewriter: PatternRewriter) -> None:
    """softmax(q k^T) v of rank 3 that has no axis of heads, with one of extent 1."""
    softmax = made_by(op.a, SoftmaxOp)
    if softmax is None or rank_of(op.result) != 3 or softmax.axis.value.data != 2:
        return
    scores = _scores(softmax.x)
    values = (op.b, scores.q, scores.kt) if scores is not None else ()
    if scores is None or scores.parts:
        return
    if {rank_of(x) for x in values} != {3} or any(d.unknown for x in values for d in shape_of(x)):
        return
    if len({shape_of(x)[0] for x in values}) != 1:
        return
    turned = made_by(scores.kt, TransposeOp)
    build = Builder()
    if turned is not None and turned.permutation == (0, 2, 1):
        key = turned.x
    else:
        key = build(TransposeOp(scores.kt, (0, 2, 1)))
    made = AttentionOp(scores.q, key, op.b, heads=1, kv_heads=1, scale=scores.scale)
    substitute(rewriter, op, *build.made, made)


def _heads_apart(value: SSAValue) -> SSAValue | None:
    """[B, H, S, D] of which the value [B, S, H*D] is the tokens-major form."""
    flat = made_by(value, ReshapeOp)
    turned = made_by(flat.x, TransposeOp) if flat is not None else None
    if turned is None or turned.permutation != (0, 2, 1, 3):
        return None
    batch, heads, length, size = shape_of(turned.x)
    return turned.x if shape_of(value) == (batch, length, heads * size) else None


def _grouped(op: AttentionOp, rewriter: PatternRewriter) -> None:
    """Keys and values that are a cache, or repeat their heads, are read as they are."""
    apart = [_heads_apart(v) if rank_of(v) == 3 else v for v in (op.k, op.v)]
    known = [repeated(v) for v in apart if v is not None]
    if len(known) != 2 or all(a is b for a, b in zip(known, (op.k, op.v), strict=True)):
        return
    counts = {shape_of(v)[1].as_int() for v in known}
    count = counts.pop()
    plain = count == op.kv_head_count and not all(is_cache(v) for v in known)
    if counts or count is None or plain:
        return
    build = Builder()
    key, value = (v if is_cache(v) else build.tokens(v) for v in known)
    made = AttentionOp(
        op.q,
        key,
        value,
        heads=op.head_count,
        kv_heads=count,
        scale=op.scale_value,
        causal=bool(op.causal),
        window=None if op.window is None else op.window.value.data,
        key_mask=op.key_mask,
        bias=op.bias,
    )
    substitute(rewriter, op, *build.made, made)


@dataclass(frozen=True)
class LiftAttention(ModulePass):
    """Recognises attention."""

    name = "lift-attention"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites to a fixpoint."""
        sink = (On(ReshapeOp, _sink_scale), On(TransposeOp, _sink_scale))
        rewrite(op, *FOLDED, *SHAPE_PATTERNS)
        rewrite(op, *SHAPE_PATTERNS, *sink)
        whole = (On(MatmulOp, _attention), On(MatmulOp, _one_head), On(AttentionOp, _grouped))
        rewrite(op, *whole, *SHAPE_PATTERNS, *sink)
