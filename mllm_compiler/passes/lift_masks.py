"""`lift-masks`: a bias that only excludes keys becomes `causal` and a key mask; tolerance 1e-5.

    %seen = mllm.compare le %keys, %queries : (tensor<1x5xi64>, tensor<3x1xi64>) -> tensor<3x5xi1>
    %kept = mllm.cast %attention_mask : (tensor<1x5xi64>) -> tensor<1x5xi1>
    %both = mllm.binary and (reshape %seen), (reshape %kept) : (...) -> tensor<1x1x3x5xi1>
    %bias = mllm.select %both, %zero, %lowest : (...) -> tensor<1x1x3x5xf32>
    %y = mllm.attention %q, %k, %v bias(%bias : tensor<1x1x3x5xf32>) {...} : (...) -> ...

becomes

    %y = mllm.attention %q, %k, %v key_mask(%attention_mask : tensor<1x5xi64>)
      {..., causal = true} : (...) -> tensor<1x3x32xf32>

where %keys counts the keys from 0 and %queries the queries from S - T. Parts of a sum of biases
are read one by one; those that say anything else stay the bias. A query that sees no key means
nothing: in the first form it attends to what the spelling leaves (where two masks are added, to the
keys that only one of them excludes), in the second to all keys alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, i1, i64
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import (
    AttentionOp,
    BinaryKind,
    BinaryOp,
    BroadcastOp,
    CastOp,
    CompareKind,
    CompareOp,
    IotaOp,
    ReshapeOp,
    SelectOp,
    UnaryKind,
    constant_array,
    constant_scalar,
)
from mllm_compiler.dialects.types import element_of, is_float, is_integer, rank_of, shape_of
from mllm_compiler.passes.counted_rows import count_of
from mllm_compiler.passes.lift_attention import EXCLUDED, Builder
from mllm_compiler.passes.matching import binary, is_readable, made_by, unary, with_scalar
from mllm_compiler.passes.rewrite import On, rewrite, substitute


@dataclass(frozen=True)
class Mask:
    """Which keys a query sees.

    Attributes:
        causal: Only the keys s <= t + (S - T).
        window: Of those only so many.
        keys: Only those where all of these are not 0; each [B, S] or [1, S].
    """

    causal: bool = False
    window: int | None = None
    keys: tuple[SSAValue, ...] = ()

    def __and__(self, other: Mask) -> Mask:
        """What both let through."""
        windows = [w for w in (self.window, other.window) if w is not None]
        return Mask(
            self.causal or other.causal,
            min(windows) if windows else None,
            tuple(dict.fromkeys((*self.keys, *other.keys))),
        )


def _through(value: SSAValue, batch: bool) -> tuple[SSAValue, bool]:
    """What a value is a reshape or a broadcast of.

    The last axes of a value stand for queries and keys; `batch` says that those of a matrix stand
    for the batch and keys, which is so behind a reshape to [B, 1, 1, S].
    """
    while isinstance(owner := value.owner, ReshapeOp | BroadcastOp):
        if isinstance(owner, ReshapeOp) and (rank_of(owner.x), rank_of(value)) == (2, 4):
            first, heads, queries, keys = shape_of(value)
            only_keys = heads.as_int() == queries.as_int() == 1
            batch = only_keys and shape_of(owner.x) == (first, keys)
        value = owner.x
    return value, batch


def _both(first: Mask | None, second: Mask | None) -> Mask | None:
    """What two masks let through; None where one of them is none."""
    return first & second if first is not None and second is not None else None


def _bias(value: SSAValue, batch: bool = False) -> Mask | None:
    """The mask that an additive bias is, None where it is anything else."""
    value, batch = _through(value, batch)
    if constant_scalar(value) == 0.0:
        return Mask()
    pair = binary(value, BinaryKind.ADD)
    if pair is not None:
        return _both(_bias(pair[0], batch), _bias(pair[1], batch))
    select = made_by(value, SelectOp)
    if select is not None:
        for rest, lost, read in ((select.a, select.b, _condition), (select.b, select.a, _excluded)):
            number = constant_scalar(lost)
            if number is not None and number <= EXCLUDED:
                return _both(read(select.c, batch), _bias(rest, batch))
        return None
    product = with_scalar(value, BinaryKind.MUL)
    if product is not None and product[1] <= EXCLUDED:
        return _one_minus(product[0], batch)
    return None


def _one_minus(value: SSAValue, batch: bool) -> Mask | None:
    """The mask m, where the value is 1 - m."""
    pair = binary(value, BinaryKind.SUB)
    if pair is None or constant_scalar(pair[0]) != 1.0:
        return None
    value, batch = _through(pair[1], batch)
    cast = made_by(value, CastOp)
    return _key_mask(cast.x, batch) if cast is not None else None


def _where_zero(value: SSAValue, batch: bool) -> Mask | None:
    """The mask of the places where a number is 0: 1 - m, with other numbers where that is not."""
    value, batch = _through(value, batch)
    select = made_by(value, SelectOp)
    if select is None:
        return _one_minus(value, batch)
    if not constant_scalar(select.a):
        return None
    return _both(_excluded(select.c, batch), _where_zero(select.b, batch))


def _excluded(value: SSAValue, batch: bool) -> Mask | None:
    """The mask of which a condition is the opposite."""
    value, batch = _through(value, batch)
    cast = made_by(value, CastOp)
    if cast is not None and is_float(element_of(cast.x)):
        return _where_zero(cast.x, batch)
    inner = unary(value, UnaryKind.NOT)
    if inner is not None:
        return _condition(inner, batch)
    compare = made_by(value, CompareOp)
    if compare is None:
        return None
    if compare.kind.data is CompareKind.EQ and constant_scalar(compare.b) == 0.0:
        return _key_mask(compare.a, batch)
    opposite = OPPOSITE.get(compare.kind.data)
    return _order(opposite, compare.a, compare.b) if opposite is not None else None


OPPOSITE = {
    CompareKind.LT: CompareKind.GE,
    CompareKind.GE: CompareKind.LT,
    CompareKind.GT: CompareKind.LE,
    CompareKind.LE: CompareKind.GT,
}
"""The relation that holds where another does not."""

MIRRORED = {
    CompareKind.LT: CompareKind.GT,
    CompareKind.GT: CompareKind.LT,
    CompareKind.LE: CompareKind.GE,
    CompareKind.GE: CompareKind.LE,
}
"""The relation of b to a, where another is that of a to b."""


def _condition(value: SSAValue, batch: bool) -> Mask | None:
    """The mask that a condition is."""
    value, batch = _through(value, batch)
    truths = constant_array(value)
    if truths is not None and bool(truths.all()):
        return Mask()
    pair = binary(value, BinaryKind.AND)
    if pair is not None:
        return _both(_condition(pair[0], batch), _condition(pair[1], batch))
    inner = unary(value, UnaryKind.NOT)
    if inner is not None:
        return _excluded(inner, batch)
    compare = made_by(value, CompareOp)
    if compare is None:
        return _key_mask(value, batch)
    if compare.kind.data is CompareKind.NE and constant_scalar(compare.b) == 0.0:
        return _key_mask(compare.a, batch)
    if _always(compare):
        return Mask()
    return _order(compare.kind.data, compare.a, compare.b)


def _always(op: CompareOp) -> bool:
    """Whether what is compared counts up from the bound that it must reach."""
    count, bound = count_of(op.a), constant_scalar(op.b)
    if count is None or bound is None or op.kind.data is not CompareKind.GE:
        return False
    numbers = [d.as_int() for d in (count.offset - int(bound), *count.steps.values())]
    return all(number is not None and number >= 0 for number in numbers)


def _key_mask(value: SSAValue, batch: bool) -> Mask | None:
    """A mask [B, S], of which the value [B, 1, 1, S] may be a reshape or a cast."""
    dims = shape_of(value)
    if rank_of(value) == 4 and not all(d.as_int() == 1 for d in dims[1:3]):
        return None
    if rank_of(value) not in (2, 4):
        return None
    if rank_of(value) == 2 and not batch and dims[0].as_int() != 1:
        return None
    source, _ = _through(value, batch)
    cast = made_by(source, CastOp)
    if cast is not None and element_of(source) == i1 and is_integer(element_of(cast.x)):
        source, _ = _through(cast.x, batch)
    if rank_of(source) != 2 or shape_of(source)[-1] != dims[-1]:
        return None
    if element_of(source) not in (i1, i64) and not is_integer(element_of(source)):
        return None
    return Mask(keys=(source,))


def _order(kind: CompareKind, a: SSAValue, b: SSAValue) -> Mask | None:
    """A causal mask or a window, where a and b count keys and queries."""
    for relation, keys, queries in ((kind, a, b), (MIRRORED.get(kind), b, a)):
        key, query = _counted(keys, -1), _counted(queries, -2)
        if relation is None or key is None or query is None:
            continue
        length, count = shape_of(key.result)[0], shape_of(query.result)[0]
        last = query.start.data[0] - key.start.data[0] - (length - count)
        distance = last.as_int()
        if distance is None:
            return None
        return _relation(relation, distance)
    return None


def _relation(kind: CompareKind, distance: int) -> Mask | None:
    """The mask of `s kind t + (S - T) + distance`."""
    if (kind, distance) in ((CompareKind.LE, 0), (CompareKind.LT, 1)):
        return Mask(causal=True)
    if kind in (CompareKind.GT, CompareKind.GE):
        window = -distance + (1 if kind is CompareKind.GE else 0)
        return Mask(window=window) if window > 0 else None
    return None


def _counted(value: SSAValue, axis: int) -> IotaOp | None:
    """The counter that a value is along an axis, all others being 1."""
    counter = made_by(_through(value, False)[0], IotaOp)
    if counter is None or counter.step.value.data != 1:
        return None
    dims = shape_of(value)
    if len(dims) < -axis or dims[axis] != shape_of(counter.result)[0]:
        return None
    rest = [d for at, d in enumerate(dims) if at != len(dims) + axis]
    return counter if all(d == Dim.const(1) for d in rest) else None


def _summands(value: SSAValue) -> list[SSAValue]:
    """The parts of a sum."""
    pair = binary(value, BinaryKind.ADD)
    return [value] if pair is None else [part for v in pair for part in _summands(v)]


def _attention(op: AttentionOp, rewriter: PatternRewriter) -> None:
    if op.bias is None or not is_float(element_of(op.bias)) or not is_readable(op.bias):
        return
    read = [(part, _bias(part)) for part in _summands(op.bias)]
    masks = [mask for _, mask in read if mask is not None]
    if not masks:
        return
    mask = Mask(window=None if op.window is None else op.window.value.data)
    for part in masks:
        mask = mask & part
    causal = bool(op.causal) or mask.causal
    if mask.window is not None and not causal:
        return
    build = Builder()
    keys = mask.keys if op.key_mask is None else (op.key_mask, *mask.keys)
    new = AttentionOp(
        op.q,
        op.k,
        op.v,
        heads=op.head_count,
        kv_heads=op.kv_head_count,
        scale=op.scale_value,
        causal=causal,
        window=mask.window,
        key_mask=_joined(keys, build.made),
        bias=build.total([part for part, mask in read if mask is None], op.bias),
    )
    substitute(rewriter, op, *build.made, new)


def _joined(masks: Sequence[SSAValue], made: list[Operation]) -> SSAValue | None:
    """One mask of i1 or i64 that is set where all are."""
    total: SSAValue | None = None
    for mask in masks:
        kind = element_of(mask)
        if kind not in (i1, i64) or (len(masks) > 1 and kind != i1):
            made.append(CastOp(mask, i1))
            mask = made[-1].results[0]
        if total is not None:
            made.append(BinaryOp(BinaryKind.AND, total, mask))
            mask = made[-1].results[0]
        total = mask
    return total


@dataclass(frozen=True)
class LiftMasks(ModulePass):
    """Recognises causal, windowed and key masks."""

    name = "lift-masks"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites to a fixpoint."""
        rewrite(op, On(AttentionOp, _attention))
