"""Attention to a cache that grows, in the `mllm` dialect."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from xdsl.dialects.builtin import BoolAttr, FloatAttr, IntegerAttr, TensorType, f16, i1, i64
from xdsl.ir import Attribute, SSAValue
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

from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm.attention import divides
from mllm_compiler.dialects.mllm.contract import (
    agree,
    all_agree,
    check,
    given,
    integer,
    number,
)
from mllm_compiler.dialects.mllm.quant import value_of
from mllm_compiler.dialects.types import element_of, is_float, rank_of, shape_of


@irdl_op_definition
class CachedAttentionOp(IRDLOperation):
    """Append new tokens to a cache and attend to all of it: `mllm.kv_append` and `mllm.attention`.

    q [B, T, H*D], k [B, T, Hkv*D] and v [B, T, Hkv*Dv] of the new tokens, past_k [B, Hkv, P, D],
    past_v [B, Hkv, P, Dv], key_mask? [B, P+T], bias? [*, *, T, P+T] -> result [B, T, H*Dv],
    present_k [B, Hkv, P+T, D], present_v [B, Hkv, P+T, Dv]. A target may append where the past
    lies: what is present is the past with the new tokens behind (the cache update of ONNX Runtime's
    GroupQueryAttention; paged, Kwon et al. 2023). Masks and windows are those of `mllm.attention`.

    With cache_bits the cache is quantised, and what is present is what it holds. With 16 bits, new
    tokens are rounded to f16. With 8 and 4, what is present is what codes mean. A new token takes 8
    bits: one scale for its keys and one for its values in each head, the largest magnitude
    over 127, kept as f16 (`mllm.quantize`); keys are divided by k_scale of their head and channel
    before, and multiplied by it after. What is past is read as it is. With 4 bits, a query at
    position t of the cache reads the tokens before 256 floor(t / 256) - 512, but not the first 32,
    by codes of 4 bits that those of 8 were turned into: codes from 0 to 15 over the range from
    least to largest, whose least and step are f16; of keys in groups of 32 tokens for each head and
    channel, of values for each token and head (KIVI, Liu et al. 2024; the first tokens are sinks,
    Xiao et al. 2023). So a page of 256 tokens falls to 4 bits when it is whole and 512 younger
    tokens stay, and the result does not depend on how a sequence is cut into calls.

    C1  kv_heads divides heads, both are positive.
    C2  q is [B, T, H*D], k [B, T, Hkv*D] and v [B, T, Hkv*Dv].
    C3  past_k is [B, Hkv, P, D] and past_v [B, Hkv, P, Dv].
    C4  present_k is [B, Hkv, P+T, D] and present_v [B, Hkv, P+T, Dv].
    C5  key_mask is [B, P+T], i1 or i64; bias is rank 4, of the type of q.
    C6  the result is [B, T, H*Dv]; all real tensors have one floating-point type; scale is finite.
    C7  a window is positive and stands only with causal.
    C8  cache_bits is 4, 8 or 16; k_scale is [Hkv, D] of f16, and stands with 4 and 8 alone.
    """

    name = "mllm.cached_attention"

    q = operand_def(TensorType)
    k = operand_def(TensorType)
    v = operand_def(TensorType)
    past_k = operand_def(TensorType)
    past_v = operand_def(TensorType)
    key_mask = opt_operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    k_scale = opt_operand_def(TensorType)
    heads = prop_def(IntegerAttr)
    kv_heads = prop_def(IntegerAttr)
    scale = prop_def(FloatAttr)
    causal = prop_def(BoolAttr, default_value=BoolAttr.from_bool(False))
    window = opt_prop_def(IntegerAttr)
    cache_bits = opt_prop_def(IntegerAttr)
    result = result_def(TensorType)
    present_k = result_def(TensorType)
    present_v = result_def(TensorType)

    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
    traits = traits_def(Pure())
    assembly_format = (
        "$q `,` $k `,` $v `past` `(` $past_k `,` $past_v `)` "
        "(`key_mask` `(` $key_mask^ `:` type($key_mask) `)`)? "
        "(`bias` `(` $bias^ `:` type($bias) `)`)? "
        "(`k_scale` `(` $k_scale^ `:` type($k_scale) `)`)? attr-dict `:` "
        "`(` type($q) `,` type($k) `,` type($v) `,` type($past_k) `,` type($past_v) `)` `->` "
        "`(` type($result) `,` type($present_k) `,` type($present_v) `)`"
    )

    def __init__(
        self,
        q: SSAValue,
        k: SSAValue,
        v: SSAValue,
        past_k: SSAValue,
        past_v: SSAValue,
        *,
        heads: int,
        kv_heads: int,
        scale: float,
        results: Sequence[Attribute],
        causal: bool = False,
        window: int | None = None,
        key_mask: SSAValue | None = None,
        bias: SSAValue | None = None,
        k_scale: SSAValue | None = None,
        cache_bits: int | None = None,
    ) -> None:
        super().__init__(
            operands=[q, k, v, past_k, past_v, key_mask, bias, k_scale],
            properties=given(
                heads=integer(heads),
                kv_heads=integer(kv_heads),
                scale=number(scale),
                causal=BoolAttr.from_bool(causal),
                window=None if window is None else integer(window),
                cache_bits=None if cache_bits is None else integer(cache_bits),
            ),
            result_types=results,
        )

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
        """The number of keys, past and new."""
        return shape_of(self.past_k)[2] + shape_of(self.k)[1]

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        heads, kv_heads = self.head_count, self.kv_head_count
        check(self, 1, heads > 0 < kv_heads and heads % kv_heads == 0, "kv_heads divides heads")
        q, k, v = (shape_of(x) for x in (self.q, self.k, self.v))
        fits = len(q) == len(k) == len(v) == 3
        fits = fits and all_agree(q[:2], k[:2]) and all_agree(q[:2], v[:2])
        fits = fits and agree(k[2] * (heads // kv_heads), q[2]) and divides(heads, q[2])
        check(self, 2, fits and divides(kv_heads, v[2]), "q must be [B, T, H*D], k and v alike")
        past_k, past_v = shape_of(self.past_k), shape_of(self.past_v)
        fits = len(past_k) == 4 == len(past_v) and all_agree(past_k[:3], past_v[:3])
        fits = fits and all_agree(past_k[:2], (q[0], kv_heads))
        fits = fits and agree(past_k[3] * kv_heads, k[2]) and agree(past_v[3] * kv_heads, v[2])
        check(self, 3, fits, "past_k must be [B, Hkv, P, D] and past_v [B, Hkv, P, Dv]")
        keys = self.keys
        fits = all(
            all_agree(shape_of(present), (*past[:2], keys, past[3]))
            for present, past in ((self.present_k, past_k), (self.present_v, past_v))
        )
        check(self, 4, fits, "present_k and present_v must be [B, Hkv, P + T, *]")
        mask, bias = self.key_mask, self.bias
        fits = mask is None or (
            element_of(mask) in (i1, i64) and rank_of(mask) == 2 and agree(shape_of(mask)[1], keys)
        )
        fits &= bias is None or (rank_of(bias) == 4 and element_of(bias) == element_of(self.q))
        check(self, 5, fits, "key_mask must be [B, P + T] and bias [*, *, T, P + T]")
        real = (self.q, self.k, self.v, self.past_k, self.past_v, *self.results)
        fits = len({element_of(x) for x in real}) == 1 and is_float(element_of(self.q))
        fits &= all_agree(shape_of(self.result), (*q[:2], v[2] * (heads // kv_heads)))
        check(self, 6, fits and isfinite(self.scale_value), "the result must be [B, T, H*Dv]")
        fits = self.window is None or (self.window.value.data > 0 and bool(self.causal))
        check(self, 7, fits, "a window must be positive and causal")
        scale, bits = self.k_scale, value_of(self.cache_bits)
        fits = (scale is None) == (bits in (None, 16)) and bits in (None, 4, 8, 16)
        fits &= scale is None or (
            element_of(scale) == f16 and all_agree(shape_of(scale), past_k[1::2])
        )
        check(self, 8, fits, "cache_bits must be 4, 8 or 16, and k_scale [Hkv, D] of f16")
