"""The `mllm` dialect: the contract between importers, passes and backends.

Layouts are tokens-major ([batch, tokens, features]); every op is a contract whose docstring
numbers the constraints that its verifier cites.
"""

from xdsl.ir import Attribute, Dialect, Operation

from mllm_compiler.dialects.dims import DimsAttr
from mllm_compiler.dialects.mllm.attention import AttentionInterface, AttentionOp, CrossAttnOp
from mllm_compiler.dialects.mllm.banks import BankAttr
from mllm_compiler.dialects.mllm.bounds import BoundAttr, VariantAttr, default_bound
from mllm_compiler.dialects.mllm.cached_attention import CachedAttentionOp
from mllm_compiler.dialects.mllm.constants import (
    LARGEST_CONSTANT,
    BlobAttr,
    ConstantOp,
    WeightOp,
    array_of,
    constant_array,
    constant_scalar,
    dense_of,
)
from mllm_compiler.dialects.mllm.elementwise import (
    BinaryOp,
    CastOp,
    CompareOp,
    SelectOp,
    UnaryOp,
)
from mllm_compiler.dialects.mllm.fused import ActivatedLinearOp, QkvOp
from mllm_compiler.dialects.mllm.integer import (
    IntegerConvOp,
    IntegerMatmulOp,
    QuantizedLinearOp,
)
from mllm_compiler.dialects.mllm.kinds import (
    KIND_ATTRS,
    Activation,
    BinaryKind,
    CompareKind,
    Coordinates,
    NormKind,
    PoolKind,
    ReduceKind,
    ResizeMode,
    UnaryKind,
)
from mllm_compiler.dialects.mllm.kv import KvAppendOp, KvViewOp
from mllm_compiler.dialects.mllm.linear import EmbeddingOp, GatherOp, LinearOp, MatmulOp
from mllm_compiler.dialects.mllm.mlp import GatedMlpOp, MlpOp
from mllm_compiler.dialects.mllm.norm import LayerNormOp, ReduceOp, RmsNormOp, SoftmaxOp
from mllm_compiler.dialects.mllm.norm_fused import NormGatedMlpOp, ResidualNormOp
from mllm_compiler.dialects.mllm.pipeline import CacheAttr, EdgeAttr, PipelineOp
from mllm_compiler.dialects.mllm.position import AlibiOp, RopeOp
from mllm_compiler.dialects.mllm.quant import DequantizeOp, DynamicQuantizeOp, QuantizeOp
from mllm_compiler.dialects.mllm.scan import CumsumOp, SelectiveScanOp
from mllm_compiler.dialects.mllm.shape import (
    BroadcastOp,
    ConcatOp,
    IotaOp,
    PadOp,
    ReshapeOp,
    SliceOp,
    TransposeOp,
)
from mllm_compiler.dialects.mllm.tokens import TokenGatherOp, TokenImportanceOp, TopKOp
from mllm_compiler.dialects.mllm.vision import ConvOp, PatchEmbedOp, PoolOp, ResizeOp

OPS: list[type[Operation]] = [
    WeightOp,
    ConstantOp,
    UnaryOp,
    BinaryOp,
    CompareOp,
    SelectOp,
    CastOp,
    LinearOp,
    MatmulOp,
    EmbeddingOp,
    GatherOp,
    GatedMlpOp,
    MlpOp,
    LayerNormOp,
    RmsNormOp,
    SoftmaxOp,
    ReduceOp,
    CumsumOp,
    SelectiveScanOp,
    AttentionOp,
    CrossAttnOp,
    RopeOp,
    AlibiOp,
    QkvOp,
    CachedAttentionOp,
    ActivatedLinearOp,
    ResidualNormOp,
    NormGatedMlpOp,
    PatchEmbedOp,
    ConvOp,
    PoolOp,
    ResizeOp,
    ReshapeOp,
    TransposeOp,
    ConcatOp,
    SliceOp,
    BroadcastOp,
    IotaOp,
    PadOp,
    KvAppendOp,
    KvViewOp,
    TokenImportanceOp,
    TopKOp,
    TokenGatherOp,
    QuantizeOp,
    DequantizeOp,
    DynamicQuantizeOp,
    QuantizedLinearOp,
    IntegerMatmulOp,
    IntegerConvOp,
    PipelineOp,
]
"""The op classes, in the order of the dialect page."""

ATTRIBUTES: list[type[Attribute]] = [
    DimsAttr,
    BlobAttr,
    EdgeAttr,
    CacheAttr,
    BankAttr,
    BoundAttr,
    VariantAttr,
    *KIND_ATTRS,
]
"""The attribute classes."""

Mllm = Dialect("mllm", OPS, ATTRIBUTES)
"""The dialect, to load or register."""

__all__ = [
    "ATTRIBUTES",
    "LARGEST_CONSTANT",
    "OPS",
    "ActivatedLinearOp",
    "Activation",
    "AlibiOp",
    "AttentionInterface",
    "AttentionOp",
    "BankAttr",
    "BinaryKind",
    "BinaryOp",
    "BlobAttr",
    "BoundAttr",
    "BroadcastOp",
    "CacheAttr",
    "CachedAttentionOp",
    "CastOp",
    "CompareKind",
    "CompareOp",
    "ConcatOp",
    "ConstantOp",
    "ConvOp",
    "Coordinates",
    "CrossAttnOp",
    "CumsumOp",
    "DequantizeOp",
    "DynamicQuantizeOp",
    "EdgeAttr",
    "EmbeddingOp",
    "GatedMlpOp",
    "GatherOp",
    "IntegerConvOp",
    "IntegerMatmulOp",
    "IotaOp",
    "KvAppendOp",
    "KvViewOp",
    "LayerNormOp",
    "LinearOp",
    "MatmulOp",
    "Mllm",
    "MlpOp",
    "NormGatedMlpOp",
    "NormKind",
    "PadOp",
    "PatchEmbedOp",
    "PipelineOp",
    "PoolKind",
    "PoolOp",
    "QkvOp",
    "QuantizeOp",
    "QuantizedLinearOp",
    "ReduceKind",
    "ReduceOp",
    "ReshapeOp",
    "ResidualNormOp",
    "ResizeMode",
    "ResizeOp",
    "RmsNormOp",
    "RopeOp",
    "SelectOp",
    "SelectiveScanOp",
    "SliceOp",
    "SoftmaxOp",
    "TokenGatherOp",
    "TokenImportanceOp",
    "TopKOp",
    "TransposeOp",
    "UnaryKind",
    "UnaryOp",
    "VariantAttr",
    "WeightOp",
    "array_of",
    "constant_array",
    "constant_scalar",
    "default_bound",
    "dense_of",
]
