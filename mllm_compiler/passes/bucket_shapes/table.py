"""The padded form of each op: what is done to it before its symbols become sizes."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import Operation

from mllm_compiler.dialects import mllm
from mllm_compiler.passes.bucket_shapes import attention, mixing, movement, rows
from mllm_compiler.passes.bucket_shapes.padded import Padded

Rule = Callable[..., None]
"""Takes an op and the graph; refuses an op that has no padded form."""


def _patch_embed(op: mllm.PatchEmbedOp, p: Padded) -> None:
    rows.static(op, p, p.dims(op.pixels)[1:])


def _token_importance(op: mllm.TokenImportanceOp, p: Padded) -> None:
    rows.static(op, p, (*p.dims(op.q)[1:], *p.dims(op.k)[1:]))


RULES: dict[type[Operation], Rule] = {
    mllm.UnaryOp: rows.unary,
    mllm.BinaryOp: rows.binary,
    mllm.CompareOp: rows.aligned,
    mllm.SelectOp: rows.aligned,
    mllm.CastOp: rows.plain,
    mllm.TransposeOp: rows.plain,
    mllm.LinearOp: rows.linear,
    mllm.QkvOp: attention.qkv,
    mllm.CachedAttentionOp: attention.cached_attention,
    mllm.ActivatedLinearOp: rows.linear,
    mllm.ResidualNormOp: rows.residual_norm,
    mllm.NormGatedMlpOp: rows.rows,
    mllm.MlpOp: rows.rows,
    mllm.GatedMlpOp: rows.rows,
    mllm.LayerNormOp: mixing.layer_norm,
    mllm.RmsNormOp: rows.rows,
    mllm.QuantizeOp: rows.scaled,
    mllm.DequantizeOp: rows.scaled,
    mllm.DynamicQuantizeOp: rows.dynamic_quantize,
    mllm.QuantizedLinearOp: rows.quantized_linear,
    mllm.IntegerMatmulOp: rows.integer_matmul,
    mllm.IntegerConvOp: rows.integer_conv,
    mllm.SoftmaxOp: mixing.softmax,
    mllm.ReduceOp: mixing.reduce,
    mllm.CumsumOp: mixing.cumsum,
    mllm.SelectiveScanOp: mixing.selective_scan,
    mllm.MatmulOp: mixing.matmul,
    mllm.ConvOp: mixing.conv,
    mllm.PoolOp: mixing.pool,
    mllm.TopKOp: mixing.top_k,
    mllm.PatchEmbedOp: _patch_embed,
    mllm.AttentionOp: attention.attention,
    mllm.CrossAttnOp: attention.cross_attn,
    mllm.RopeOp: attention.rope,
    mllm.AlibiOp: attention.alibi,
    mllm.KvAppendOp: attention.kv_append,
    mllm.TokenGatherOp: attention.token_gather,
    mllm.TokenImportanceOp: _token_importance,
    mllm.EmbeddingOp: movement.embedding,
    mllm.GatherOp: movement.gather,
    mllm.ConcatOp: movement.concat,
    mllm.SliceOp: movement.slice_,
    mllm.IotaOp: movement.iota,
    mllm.PadOp: movement.pad,
    mllm.BroadcastOp: movement.broadcast,
    mllm.ReshapeOp: movement.reshape,
}
"""The rule of each op that may have symbols among its dims."""
