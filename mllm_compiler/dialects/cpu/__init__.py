"""The cpu dialect: one op for each C kernel, with the kernel's operands and parameters in order."""

from __future__ import annotations

from xdsl.ir import Dialect

from mllm_compiler.dialects.cpu.attention import (
    F32AttentionOp,
    F32KvStoreOp,
    F32PagedAttentionOp,
    F32RopeOp,
)
from mllm_compiler.dialects.cpu.base import CacheAttr, CpuOp, SlotAttr
from mllm_compiler.dialects.cpu.coded import (
    F32DequantizedEmbeddingOp,
    F32DequantizedLinearOp,
    QuantizedLinearOp,
)
from mllm_compiler.dialects.cpu.conv import F32ConvOp, F32PatchEmbedOp, F32PoolOp, F32ResizeOp
from mllm_compiler.dialects.cpu.data import (
    AliasOp,
    BroadcastOp,
    CastOp,
    ConcatOp,
    CopyOp,
    F32EmbeddingOp,
    GatherOp,
    IotaOp,
    PadOp,
    SliceOp,
    TopKOp,
    TransposeOp,
)
from mllm_compiler.dialects.cpu.device import DeviceCallOp
from mllm_compiler.dialects.cpu.elementwise import F32ElementwiseOp, I64ElementwiseOp
from mllm_compiler.dialects.cpu.linalg import (
    F32LayerNormOp,
    F32LinearOp,
    F32MatmulOp,
    F32ReduceOp,
    F32RmsNormOp,
    F32SoftmaxOp,
)
from mllm_compiler.dialects.cpu.quant import (
    DequantizeOp,
    DynamicQuantizeOp,
    IntegerConvOp,
    IntegerMatmulOp,
    QuantizeOp,
    UnpackOp,
)
from mllm_compiler.dialects.cpu.scan import CumsumOp, F32SelectiveScanOp
from mllm_compiler.dialects.cpu.weights import ConstantOp, WeightOp

KERNEL_OPS: list[type[CpuOp]] = [
    F32LinearOp,
    F32MatmulOp,
    F32LayerNormOp,
    F32RmsNormOp,
    F32SoftmaxOp,
    F32ReduceOp,
    CumsumOp,
    F32SelectiveScanOp,
    F32RopeOp,
    F32AttentionOp,
    F32KvStoreOp,
    F32PagedAttentionOp,
    F32ElementwiseOp,
    I64ElementwiseOp,
    F32EmbeddingOp,
    GatherOp,
    TopKOp,
    TransposeOp,
    SliceOp,
    ConcatOp,
    BroadcastOp,
    CopyOp,
    CastOp,
    IotaOp,
    PadOp,
    F32PatchEmbedOp,
    F32ConvOp,
    F32PoolOp,
    F32ResizeOp,
    QuantizedLinearOp,
    F32DequantizedLinearOp,
    F32DequantizedEmbeddingOp,
    QuantizeOp,
    DequantizeOp,
    DynamicQuantizeOp,
    UnpackOp,
    IntegerMatmulOp,
    IntegerConvOp,
    DeviceCallOp,
]
"""The ops that are one call of one C kernel."""

Cpu = Dialect("cpu", [*KERNEL_OPS, AliasOp, WeightOp, ConstantOp], [SlotAttr, CacheAttr])
"""The dialect object."""

__all__ = [
    "KERNEL_OPS",
    "AliasOp",
    "BroadcastOp",
    "CacheAttr",
    "CastOp",
    "ConcatOp",
    "ConstantOp",
    "CopyOp",
    "Cpu",
    "CpuOp",
    "CumsumOp",
    "DequantizeOp",
    "DeviceCallOp",
    "DynamicQuantizeOp",
    "F32AttentionOp",
    "F32ConvOp",
    "F32DequantizedEmbeddingOp",
    "F32DequantizedLinearOp",
    "F32ElementwiseOp",
    "F32EmbeddingOp",
    "F32KvStoreOp",
    "F32LayerNormOp",
    "F32LinearOp",
    "F32MatmulOp",
    "F32PagedAttentionOp",
    "F32PatchEmbedOp",
    "F32PoolOp",
    "F32ReduceOp",
    "F32ResizeOp",
    "F32RmsNormOp",
    "F32RopeOp",
    "F32SelectiveScanOp",
    "F32SoftmaxOp",
    "GatherOp",
    "I64ElementwiseOp",
    "IntegerConvOp",
    "IntegerMatmulOp",
    "IotaOp",
    "PadOp",
    "QuantizeOp",
    "QuantizedLinearOp",
    "SliceOp",
    "SlotAttr",
    "TopKOp",
    "TransposeOp",
    "UnpackOp",
    "WeightOp",
]
