"""The neuron dialect: an op for each operation of a Neuron network that LiteRT's plugin makes.

`lower-to-neuron` writes what the plugin is expected to record of a file; the networks that it does
record are read back into the same ops.
"""

from __future__ import annotations

from xdsl.ir import Dialect

from mllm_compiler.dialects.neuron.base import NeuronOp
from mllm_compiler.dialects.neuron.elementwise import (
    AbsOp,
    AddOp,
    CastOp,
    DivOp,
    GeluOp,
    GreaterOp,
    HardSwishOp,
    LessOp,
    LogisticOp,
    MaximumOp,
    MinimumOp,
    MulOp,
    ReluOp,
    RsqrtOp,
    SqrtOp,
    SquaredDifferenceOp,
    SubOp,
    TanhOp,
)
from mllm_compiler.dialects.neuron.products import (
    BatchMatmulOp,
    DequantizeOp,
    FullyConnectedOp,
    MeanOp,
    QuantConstantOp,
    QuantizeOp,
    ReduceMaxOp,
    ReduceSumOp,
    SoftmaxOp,
    SymmPerChannelOp,
)
from mllm_compiler.dialects.neuron.shape import (
    ConcatenationOp,
    PadV2Op,
    ReshapeOp,
    SplitOp,
    StridedSliceOp,
    TransposeOp,
)
from mllm_compiler.dialects.neuron.vision import (
    AveragePool2dOp,
    Conv2dOp,
    DepthwiseConv2dOp,
    MaxPool2dOp,
)

OPS: list[type[NeuronOp]] = [
    AbsOp,
    HardSwishOp,
    LogisticOp,
    ReluOp,
    RsqrtOp,
    SqrtOp,
    TanhOp,
    GeluOp,
    CastOp,
    AddOp,
    DivOp,
    MulOp,
    SubOp,
    MaximumOp,
    MinimumOp,
    SquaredDifferenceOp,
    GreaterOp,
    LessOp,
    QuantConstantOp,
    QuantizeOp,
    SymmPerChannelOp,
    FullyConnectedOp,
    BatchMatmulOp,
    SoftmaxOp,
    DequantizeOp,
    MeanOp,
    ReduceSumOp,
    ReduceMaxOp,
    ReshapeOp,
    TransposeOp,
    ConcatenationOp,
    SplitOp,
    StridedSliceOp,
    PadV2Op,
    Conv2dOp,
    DepthwiseConv2dOp,
    AveragePool2dOp,
    MaxPool2dOp,
]
"""The op classes, in the order of the dialect page."""

Neuron = Dialect("neuron", [*OPS])
"""The dialect, to load or register."""

__all__ = [
    "OPS",
    "AbsOp",
    "AddOp",
    "AveragePool2dOp",
    "BatchMatmulOp",
    "CastOp",
    "ConcatenationOp",
    "Conv2dOp",
    "DepthwiseConv2dOp",
    "DequantizeOp",
    "DivOp",
    "FullyConnectedOp",
    "GeluOp",
    "GreaterOp",
    "HardSwishOp",
    "LessOp",
    "LogisticOp",
    "MaxPool2dOp",
    "MaximumOp",
    "MeanOp",
    "MinimumOp",
    "MulOp",
    "Neuron",
    "NeuronOp",
    "PadV2Op",
    "QuantConstantOp",
    "QuantizeOp",
    "ReduceMaxOp",
    "ReduceSumOp",
    "ReluOp",
    "ReshapeOp",
    "RsqrtOp",
    "SoftmaxOp",
    "SplitOp",
    "SqrtOp",
    "SquaredDifferenceOp",
    "StridedSliceOp",
    "SubOp",
    "SymmPerChannelOp",
    "TanhOp",
    "TransposeOp",
]
