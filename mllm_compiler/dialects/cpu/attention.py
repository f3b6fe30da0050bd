"""Rotary positions, attention over tensors and over the paged cache, float32."""

from __future__ import annotations

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, TensorType, f16
from xdsl.irdl import (
    AttrSizedOperandSegments,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)

from mllm_compiler.dialects.cpu.base import CpuOp, Param
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm.contract import all_agree, check
from mllm_compiler.dialects.mllm.quant import value_of
from mllm_compiler.dialects.types import element_of, shape_of


@irdl_op_definition
class F32RopeOp(CpuOp):
    """Rotate the first R channels of each head by position times frequency (Su et al. 2021).

    x is [B, T, H*D] and `inv_freq` is [R/2]; the pairs are (i, i + R/2), or (2i, 2i + 1) where
    interleaved. Sines and cosines are computed inside.

    C1  positions are [B, T], i64.
    C2  heads divides the last dimension of x.
    C3  y has x's shape.
    """

    name = "cpu.f32_rope"
    x = operand_def(TensorType)
    positions = operand_def(TensorType)
    inv_freq = operand_def(TensorType)
    heads = prop_def(IntegerAttr)
    interleaved = prop_def(IntegerAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 to C3."""
        x = shape_of(self.x)
        fits = len(x) == 3 and all_agree(shape_of(self.positions), x[:2])
        check(self, 1, fits, "positions are [B, T]")
        check(self, 2, _divides(self.heads.value.data, x[2]), "heads divides the last dimension")
        check(self, 3, all_agree(shape_of(self.y), x), "y has x's shape")


@irdl_op_definition
class F32AttentionOp(CpuOp):
    """Softmax(scale Q K^T + bias) V over whole tensors: q [B, T, H*D] -> [B, T, H*Dv].

    k and v are tokens-major [B, S, Hkv*D] or in cache layout [B, Hkv, S, D]. Where `causal`, query
    t sees keys s <= t + (S - T); where `window` is not 0, only the last `window` of those. A key
    whose `key_mask` is 0 is not seen; `bias` [*, *, T, S] is added to the scores. A
    query that sees no key gives the mean of all values.

    C1  heads divides q's last dimension, and kv_heads divides heads.
    C2  k and v are both of rank 3 or both of rank 4.
    C3  key_mask is [B, S].
    """

    name = "cpu.f32_attention"
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    q = operand_def(TensorType)
    k = operand_def(TensorType)
    v = operand_def(TensorType)
    key_mask = opt_operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    heads = prop_def(IntegerAttr)
    kv_heads = prop_def(IntegerAttr)
    scale = prop_def(FloatAttr)
    causal = prop_def(IntegerAttr)
    window = prop_def(IntegerAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 to C3."""
        _check_heads(self)
        ranks = len(shape_of(self.k)), len(shape_of(self.v))
        check(self, 2, ranks in ((3, 3), (4, 4)), "k and v are both of rank 3 or both of rank 4")
        mask = self.key_mask
        check(self, 3, mask is None or len(shape_of(mask)) == 2, "key_mask is [B, S]")


@irdl_op_definition
class F32KvStoreOp(CpuOp):
    """Append T tokens to one layer of the entry's cache, at the cache's length.

    The length itself advances once an entry, after its last stage. With `bits` the layer's pages
    hold f16 (16), or codes as `mllm.cached_attention` says (8 and 4): keys are divided by `k_scale`
    before. The runtime knows both from the record of the cache.

    C1  k and v are [B, T, Hkv*D] and kv_heads divides the last dimension.
    C2  bits is 4, 8 or 16; k_scale is [Hkv, D] of f16, and stands with 4 and 8 alone.
    """

    name = "cpu.f32_kv_store"
    k = operand_def(TensorType)
    v = operand_def(TensorType)
    k_scale = opt_operand_def(TensorType)
    layer = prop_def(IntegerAttr)
    kv_heads = prop_def(IntegerAttr)
    bits = opt_prop_def(IntegerAttr)

    def params(self) -> list[Param]:
        """Layer and heads; the bits are the cache's."""
        return [("i64", self.layer.value.data), ("i64", self.kv_heads.value.data)]

    def check_contract(self) -> None:
        """C1 and C2."""
        k, v, heads = shape_of(self.k), shape_of(self.v), self.kv_heads.value.data
        fits = len(k) == len(v) == 3 and _divides(heads, k[2]) and _divides(heads, v[2])
        check(self, 1, fits, "k and v are [B, T, Hkv*D]")
        bits, scale = value_of(self.bits), self.k_scale
        fits = bits in (None, 4, 8, 16) and (scale is None) == (bits in (None, 16))
        fits &= scale is None or (element_of(scale) == f16 and len(shape_of(scale)) == 2)
        if scale is not None:
            rows, size = shape_of(scale)
            fits &= all_agree((rows, size * heads), (Dim.const(heads), k[2]))
        check(self, 2, fits, "bits is 4, 8 or 16, and k_scale [Hkv, D] of f16")


@irdl_op_definition
class F32PagedAttentionOp(CpuOp):
    """Attend to one layer of the cache through its block table: q [B, T, H*D] -> same shape.

    The keys are the cache's tokens and the T that this run's `f32_kv_store` appended. Masks, bias,
    causality and window are those of `f32_attention` with S = past + T.

    C1  heads divides q's last dimension, and kv_heads divides heads.
    C2  key_mask is [B, S].
    """

    name = "cpu.f32_paged_attention"
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    q = operand_def(TensorType)
    key_mask = opt_operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    layer = prop_def(IntegerAttr)
    heads = prop_def(IntegerAttr)
    kv_heads = prop_def(IntegerAttr)
    scale = prop_def(FloatAttr)
    causal = prop_def(IntegerAttr)
    window = prop_def(IntegerAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        _check_heads(self)
        mask = self.key_mask
        check(self, 2, mask is None or len(shape_of(mask)) == 2, "key_mask is [B, S]")


def _check_heads(op: F32AttentionOp | F32PagedAttentionOp) -> None:
    heads, kv_heads, q = op.heads.value.data, op.kv_heads.value.data, shape_of(op.q)
    fits = len(q) == 3 and _divides(heads, q[2]) and kv_heads > 0 and heads % kv_heads == 0
    check(op, 1, fits, "heads divides q's last dimension, and kv_heads divides heads")


def _divides(count: int, dim: Dim) -> bool:
    extent = dim.as_int()
    return count > 0 and (extent is None or extent % count == 0)
