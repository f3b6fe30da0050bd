"""What the operators that attend share: layouts of heads, masks, and `mllm.attention` itself."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from xdsl.dialects.builtin import f32, i1, i64
from xdsl.ir import Attribute, SSAValue

from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import (
    AttentionOp,
    BinaryKind,
    BroadcastOp,
    CastOp,
    CompareKind,
    CompareOp,
    IotaOp,
    KvAppendOp,
    MatmulOp,
    ReduceKind,
    ReduceOp,
    SelectOp,
    SoftmaxOp,
    TransposeOp,
    UnaryKind,
    UnaryOp,
    constant_scalar,
)
from mllm_compiler.dialects.mllm.contract import int_list
from mllm_compiler.dialects.types import element_of, is_integer, rank_of, shape_of
from mllm_compiler.passes.lift_onnx.emit import Emit
from mllm_compiler.passes.matching import binary, made_by, peel

ONE = Dim.const(1)

LOWEST = {"f16": -65504.0, "bf16": -3.3895313892515355e38}
"""The lowest finite numbers of types whose range is not that of float32."""


@dataclass
class Heads:
    """An attention that is being collected.

    Attributes:
        emit: Where its ops go.
        q: [B, T, H*D].
        heads: H.
        kv_heads: Of keys and values.
        scale: The factor of the scores; None for one over the root of D.
        softcap: c, where scores are c tanh(scores / c).
        causal: Query t sees the keys s <= t + (S - T).
        window: Of those only so many.
        key_mask: [B, S]; 0 excludes a key.
        biases: Added to the scores, each of a rank up to 4.
    """

    emit: Emit
    q: SSAValue
    heads: int
    kv_heads: int
    scale: float | None = None
    softcap: float = 0.0
    causal: bool = False
    window: int | None = None
    key_mask: SSAValue | None = None
    biases: list[SSAValue] = field(default_factory=list[SSAValue])

    def __post_init__(self) -> None:
        if self.heads < 1 or self.kv_heads < 1:
            raise ValueError(f"there are {self.heads} heads, {self.kv_heads} of keys and values")

    def attend(self, k: SSAValue, v: SSAValue) -> SSAValue:
        """[B, T, H*Dv]; k and v are tokens-major, or in cache layout."""
        size = shape_of(self.q)[2].as_int()
        if size is None:
            raise ValueError("the size of the queries is not known")
        scale = self.scale or (size // self.heads) ** -0.5
        if self.softcap:
            return self._capped(k, v, scale)
        keys = shape_of(k)[1 if rank_of(k) == 3 else 2]
        made = AttentionOp(
            self.q,
            k,
            v,
            heads=self.heads,
            kv_heads=self.kv_heads,
            scale=scale,
            causal=self.causal,
            window=self.window if self.causal else None,
            key_mask=self.key_mask,
            bias=self._bias(shape_of(self.q)[1], keys),
        )
        return self.emit(made)

    def _bias(self, queries: Dim, keys: Dim) -> SSAValue | None:
        """The sum of all biases, [*, *, T, S]."""
        total: SSAValue | None = None
        for bias in self.biases:
            dims = (*[ONE] * (4 - rank_of(bias)), *shape_of(bias))
            apart = self.emit.reshape(bias, dims)
            whole = (*dims[:2], queries, keys)
            if dims != whole and ONE in dims[2:]:
                apart = self.emit(BroadcastOp(apart, whole))
            total = apart if total is None else self.emit.binary(BinaryKind.ADD, total, apart)
        return total

    def zero_where_nothing_is_seen(self, y: SSAValue, keys: Dim) -> SSAValue:
        """Y with 0 for queries without keys, which have the mean of all values in `mllm`."""
        emit, queries, element = self.emit, shape_of(self.q)[1], element_of(y)
        masks = list(self.biases)
        if self.causal:
            masks.append(causal(emit, element, queries, keys, keys - queries))
        if self.key_mask is not None:
            seen = emit.reshape(as_condition(emit, self.key_mask), _apart(self.key_mask))
            masks.append(excluding(emit, seen, element))
        bias = replace(self, biases=masks)._bias(queries, keys)
        if bias is None:
            return y
        top = emit(ReduceOp(ReduceKind.MAX, bias, [3], keepdims=True))
        half = emit.scalar(LOWEST.get(str(element), float(np.finfo(np.float32).min)) / 2, element)
        seen = emit(CompareOp(CompareKind.GT, top, half))
        apart = y if rank_of(y) == 4 else split_heads(emit, y, self.heads)
        kept = emit(SelectOp(seen, apart, emit.scalar(0.0, element)))
        return kept if rank_of(y) == 4 else join_heads(emit, kept)

    def _capped(self, k: SSAValue, v: SSAValue, scale: float) -> SSAValue:
        """The arithmetic of attention, with tanh on its scores."""
        emit, group = self.emit, self.heads // self.kv_heads
        q = split_heads(emit, self.q, self.heads)
        k, v = (repeat(emit, in_cache_layout(emit, x, self.kv_heads), group) for x in (k, v))
        scores = emit(MatmulOp(q, emit(TransposeOp(k, (0, 1, 3, 2)))))
        inner = emit(
            UnaryOp(UnaryKind.TANH, emit.binary(BinaryKind.MUL, scores, scale / self.softcap))
        )
        scores = emit.binary(BinaryKind.MUL, inner, self.softcap)
        queries, keys = shape_of(scores)[2:]
        if self.causal:
            self.biases.append(causal(emit, element_of(q), queries, keys, keys - queries))
        if self.causal and self.window is not None:
            self.biases.append(
                windowed(emit, element_of(q), queries, keys, keys - queries - self.window)
            )
        if self.key_mask is not None:
            seen = emit.reshape(as_condition(emit, self.key_mask), _apart(self.key_mask))
            self.biases.append(excluding(emit, seen, element_of(q)))
        bias = self._bias(queries, keys)
        if bias is not None:
            scores = emit.binary(BinaryKind.ADD, scores, bias)
        return join_heads(emit, emit(MatmulOp(emit(SoftmaxOp(scores, 3)), v)))


def _apart(mask: SSAValue) -> tuple[Dim, ...]:
    batch, keys = shape_of(mask)
    return (batch, ONE, ONE, keys)


def split_heads(emit: Emit, x: SSAValue, heads: int) -> SSAValue:
    """[B, T, H*D] -> [B, H, T, D]."""
    batch, tokens, width = shape_of(x)
    apart = emit.reshape(x, (batch, tokens, heads, width // heads))
    return emit(TransposeOp(apart, (0, 2, 1, 3)))


def join_heads(emit: Emit, x: SSAValue) -> SSAValue:
    """[B, H, T, D] -> [B, T, H*D]."""
    batch, heads, tokens, size = shape_of(x)
    return emit.reshape(emit(TransposeOp(x, (0, 2, 1, 3))), (batch, tokens, heads * size))


def in_cache_layout(emit: Emit, x: SSAValue, heads: int) -> SSAValue:
    """[B, Hkv, S, D] of that or of [B, S, Hkv*D]."""
    return x if rank_of(x) == 4 else split_heads(emit, x, heads)


def repeat(emit: Emit, x: SSAValue, group: int) -> SSAValue:
    """Each head of [B, Hkv, S, D] so many times in turn."""
    if group == 1:
        return x
    batch, heads, tokens, size = shape_of(x)
    apart = emit.reshape(x, (batch, heads, 1, tokens, size))
    wide = emit(BroadcastOp(apart, (batch, heads, group, tokens, size)))
    return emit.reshape(wide, (batch, heads * group, tokens, size))


def cached(emit: Emit, past: SSAValue | None, new: SSAValue, heads: int) -> SSAValue:
    """What a cache holds after new [B, T, Hkv*D]; new in cache layout where there is no past."""
    if past is None:
        return split_heads(emit, new, heads)
    return emit(KvAppendOp(past, new, kv_heads=heads))


def as_condition(emit: Emit, mask: SSAValue) -> SSAValue:
    """Where a mask is not 0."""
    return mask if element_of(mask) == i1 else emit(CastOp(mask, i1))


def as_key_mask(emit: Emit, mask: SSAValue) -> SSAValue:
    """A mask [B, S] of i1 or i64."""
    return mask if element_of(mask) in (i1, i64) else emit(CastOp(mask, i64))


def excluding(emit: Emit, condition: SSAValue, element: Attribute) -> SSAValue:
    """A bias: 0 where a condition holds, the lowest number elsewhere."""
    lowest = LOWEST.get(str(element), float(np.finfo(np.float32).min))
    return emit(SelectOp(condition, emit.scalar(0.0, element), emit.scalar(lowest, element)))


def _places(emit: Emit, queries: Dim, keys: Dim, offset: Dim) -> tuple[SSAValue, SSAValue]:
    """The places of keys, [1, S], and of queries, [T, 1], which begin at offset."""
    at = emit.reshape(emit(IotaOp(queries, offset)), (queries, 1))
    return emit.reshape(emit(IotaOp(keys)), (1, keys)), at


def causal(emit: Emit, element: Attribute, queries: Dim, keys: Dim, offset: Dim) -> SSAValue:
    """A bias that excludes the keys s > t + offset: [T, S]."""
    key, query = _places(emit, queries, keys, offset)
    return excluding(emit, emit(CompareOp(CompareKind.LE, key, query)), element)


def windowed(emit: Emit, element: Attribute, queries: Dim, keys: Dim, offset: Dim) -> SSAValue:
    """A bias that excludes the keys s <= t + offset: [T, S]."""
    key, query = _places(emit, queries, keys, offset)
    return excluding(emit, emit(CompareOp(CompareKind.GT, key, query)), element)


def up_to(emit: Emit, lengths: SSAValue, keys: Dim, *, included: bool = False) -> SSAValue:
    """A key mask [B, S]: the keys before a length each, or up to an index each."""
    batch = shape_of(lengths)[0]
    column = lengths if element_of(lengths) == i64 else emit(CastOp(lengths, i64))
    kind = CompareKind.LE if included else CompareKind.LT
    row = emit.reshape(emit(IotaOp(keys)), (1, keys))
    return emit(CompareOp(kind, row, emit.reshape(column, (batch, 1))))


def up_to_sum(emit: Emit, last: SSAValue, keys: Dim) -> SSAValue | None:
    """A key mask [B, S] up to the index `sum(mask) - 1` of each row of a mask of integers.

    The sum is taken in float32, which is exact below 2^24 keys and has a kernel everywhere. None
    where the index is anything else.
    """
    pair = binary(peel(last), BinaryKind.SUB)
    total = made_by(peel(pair[0]), ReduceOp) if pair is not None else None
    if pair is None or total is None or constant_scalar(pair[1]) != 1.0:
        return None
    rows = rank_of(total.x) == 2 and int_list(total.axes) == (1,)
    if not rows or total.kind.data is not ReduceKind.SUM or not is_integer(element_of(total.x)):
        return None
    count = emit(ReduceOp(ReduceKind.SUM, emit(CastOp(total.x, f32)), [1], keepdims=True))
    row = emit.reshape(emit(CastOp(emit(IotaOp(keys)), f32)), (1, keys))
    return emit(CompareOp(CompareKind.LT, row, count))
