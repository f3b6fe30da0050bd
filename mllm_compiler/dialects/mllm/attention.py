"""Attention and positions of the `mllm` dialect."""

from __future__ import annotations

from abc import ABC
from math import isfinite

from xdsl.dialects.builtin import BoolAttr, FloatAttr, IntegerAttr, TensorType, i1, i64
from xdsl.ir import SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure

from mllm_compiler.dialects.dims import UNKNOWN, Dim, tensor_of
from mllm_compiler.dialects.mllm.contract import (
    agree,
    all_agree,
    check,
    given,
    integer,
    number,
)
from mllm_compiler.dialects.types import element_of, is_float, rank_of, shape_of


class AttentionInterface(IRDLOperation, ABC):
    """What `mllm.attention` and `mllm.cross_attn` share: y = softmax(scale q k^T + masks) v.

    q is [B, T, H*D] and the result [B, T, H*Dv], tokens-major; k and v are tokens-major
    [B, S, Hkv*D] and [B, S, Hkv*Dv], or in cache layout [B, Hkv, S, D] and [B, Hkv, S, Dv]. Head h
    of q reads head h // (H / Hkv) of k and v. key_mask [B, S] excludes the keys where it is 0.
    """

    q = operand_def(TensorType)
    k = operand_def(TensorType)
    v = operand_def(TensorType)
    key_mask = opt_operand_def(TensorType)
    heads = prop_def(IntegerAttr)
    kv_heads = prop_def(IntegerAttr)
    scale = prop_def(FloatAttr)
    result = result_def(TensorType)

    @property
    def head_count(self) -> int:
        """Heads of q (H)."""
        return self.heads.value.data

    @property
    def kv_head_count(self) -> int:
        """Heads of k and v (Hkv)."""
        return self.kv_heads.value.data

    @property
    def scale_value(self) -> float:
        """The factor of the scores."""
        return self.scale.value.data

    @property
    def keys(self) -> Dim:
        """The number of keys (S)."""
        return _keys(self.k)

    def verify_interface(self) -> None:
        """Checks the constraints C1 to C6, which both ops have."""
        heads, kv_heads = self.head_count, self.kv_head_count
        check(self, 1, heads > 0 < kv_heads and heads % kv_heads == 0, "kv_heads divides heads")
        q, ranks = shape_of(self.q), (rank_of(self.k), rank_of(self.v))
        check(self, 2, len(q) == 3 and divides(heads, q[2]), "q must be [B, T, H*D]")
        fits = set(ranks) <= {3, 4} and all(divides(kv_heads, _flat(v)) for v in (self.k, self.v))
        check(self, 3, fits, "k and v must be [B, S, Hkv*D] or [B, Hkv, S, D]")
        fits = agree(_flat(self.k) * (heads // kv_heads), q[2])
        fits &= agree(self.keys, _keys(self.v)) and agree(q[0], shape_of(self.k)[0])
        check(self, 4, fits, "q, k and v must agree in batch, keys and head size")
        mask = self.key_mask
        fits = mask is None or element_of(mask) in (i1, i64)
        fits &= mask is None or (rank_of(mask) == 2 and agree(shape_of(mask)[1], self.keys))
        check(self, 5, fits, "key_mask must be [B, S] of i1 or i64")
        result, elements = self.result, {element_of(v) for v in (self.q, self.k, self.v)}
        width = _flat(self.v) * (heads // kv_heads)
        fits = all_agree(shape_of(result), (*q[:2], width)) and is_float(element_of(self.q))
        fits &= elements == {element_of(result)} and isfinite(self.scale_value)
        check(self, 6, fits, "the result must be [B, T, H*Dv] of q's floating-point type")


def _keys(k: SSAValue) -> Dim:
    return shape_of(k)[1 if rank_of(k) == 3 else 2]


def _flat(k: SSAValue) -> Dim:
    dims = shape_of(k)
    return dims[2] if len(dims) == 3 else dims[1] * dims[3] if len(dims) == 4 else UNKNOWN


def divides(heads: int, width: Dim) -> bool:
    """Whether a width can be so many heads'."""
    size = width.as_int()
    return size is None or size % heads == 0


def _result(q: SSAValue, v: SSAValue, heads: int, kv_heads: int) -> TensorType:
    return tensor_of(element_of(q), (*shape_of(q)[:2], _flat(v) * (heads // kv_heads)))


@irdl_op_definition
class AttentionOp(AttentionInterface):
    """Attention within one stream (Vaswani et al. 2017): grouped, causal, windowed, masked.

    q [B, T, H*D], k and v [B, S, Hkv*D] or [B, Hkv, S, D], key_mask? [B, S], bias? [*, *, T, S]
    -> [B, T, H*Dv]. Causal: query t sees the keys s <= t + (S - T). A window w leaves the keys
    s > t + (S - T) - w. bias is added to the scaled scores. A query that sees no key attends to
    all keys alike.

    C1  kv_heads divides heads, both are positive.
    C2  q is [B, T, H*D].
    C3  k and v are [B, S, Hkv*D] or [B, Hkv, S, D].
    C4  q, k and v agree in batch, number of keys and head size.
    C5  key_mask is [B, S], i1 or i64.
    C6  the result is [B, T, H*Dv]; q, k, v and the result have one floating-point type; scale is
        finite.
    C7  bias is rank 4 and ends in [T, S], of the type of q.
    C8  a window is positive and stands only with causal.
    """

    name = "mllm.attention"

    q = operand_def(TensorType)
    k = operand_def(TensorType)
    v = operand_def(TensorType)
    key_mask = opt_operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    heads = prop_def(IntegerAttr)
    kv_heads = prop_def(IntegerAttr)
    scale = prop_def(FloatAttr)
    causal = prop_def(BoolAttr, default_value=BoolAttr.from_bool(False))
    window = opt_prop_def(IntegerAttr)
    result = result_def(TensorType)

    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
    traits = traits_def(Pure())
    assembly_format = (
        "$q `,` $k `,` $v (`key_mask` `(` $key_mask^ `:` type($key_mask) `)`)? "
        "(`bias` `(` $bias^ `:` type($bias) `)`)? attr-dict `:` "
        "`(` type($q) `,` type($k) `,` type($v) `)` `->` type($result)"
    )

    def __init__(
        self,
        q: SSAValue,
        k: SSAValue,
        v: SSAValue,
        *,
        heads: int,
        kv_heads: int,
        scale: float,
        causal: bool = False,
        window: int | None = None,
        key_mask: SSAValue | None = None,
        bias: SSAValue | None = None,
    ) -> None:
        super().__init__(
            operands=[q, k, v, key_mask, bias],
            properties=given(
                heads=integer(heads),
                kv_heads=integer(kv_heads),
                scale=number(scale),
                causal=BoolAttr.from_bool(causal),
                window=None if window is None else integer(window),
            ),
            result_types=[_result(q, v, heads, kv_heads)],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        self.verify_interface()
        if self.bias is not None:
            fits = rank_of(self.bias) == 4 and element_of(self.bias) == element_of(self.q)
            check(self, 7, fits, "bias must be [*, *, T, S] of q's type")
        if self.window is not None:
            fits = self.window.value.data > 0 and bool(self.causal)
            check(self, 8, fits, "a window must be positive and causal")


@irdl_op_definition
class CrossAttnOp(AttentionInterface):
    """Attention to another stream's keys and values, without causality (Vaswani et al. 2017).

    q [B, T, H*D], k and v [B, S, Hkv*D] or [B, Hkv, S, D] of the other stream, key_mask? [B, S]
    -> [B, T, H*Dv].

    C1  kv_heads divides heads, both are positive.
    C2  q is [B, T, H*D].
    C3  k and v are [B, S, Hkv*D] or [B, Hkv, S, D].
    C4  q, k and v agree in batch, number of keys and head size.
    C5  key_mask is [B, S], i1 or i64.
    C6  the result is [B, T, H*Dv]; q, k, v and the result have one floating-point type; scale is
        finite.
    """

    name = "mllm.cross_attn"

    q = operand_def(TensorType)
    k = operand_def(TensorType)
    v = operand_def(TensorType)
    key_mask = opt_operand_def(TensorType)
    heads = prop_def(IntegerAttr)
    kv_heads = prop_def(IntegerAttr)
    scale = prop_def(FloatAttr)
    result = result_def(TensorType)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = (
        "$q `,` $k `,` $v (`key_mask` `(` $key_mask^ `:` type($key_mask) `)`)? attr-dict `:` "
        "`(` type($q) `,` type($k) `,` type($v) `)` `->` type($result)"
    )

    def __init__(
        self,
        q: SSAValue,
        k: SSAValue,
        v: SSAValue,
        *,
        heads: int,
        kv_heads: int,
        scale: float,
        key_mask: SSAValue | None = None,
    ) -> None:
        super().__init__(
            operands=[q, k, v, key_mask],
            properties={
                "heads": integer(heads),
                "kv_heads": integer(kv_heads),
                "scale": number(scale),
            },
            result_types=[_result(q, v, heads, kv_heads)],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        self.verify_interface()
