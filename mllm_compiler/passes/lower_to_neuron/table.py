"""What the plugin makes of each operator of TFLite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects import neuron, tfl
from mllm_compiler.dialects.dims import tensor_of
from mllm_compiler.dialects.neuron import NeuronOp
from mllm_compiler.dialects.neuron.products import CHANNEL_ADAPTER
from mllm_compiler.dialects.tfl import TflOp
from mllm_compiler.dialects.types import element_of, extents, i4, i32, i64
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.folded_weights import numbers_of
from mllm_compiler.passes.graphs import location_of
from mllm_compiler.passes.lower_to_neuron.builder import Builder
from mllm_compiler.reference.tfl_coded import constant_array

Legalisation = Callable[[Any, Builder], list[SSAValue]]
"""Makes the results of an operator."""

FUSES = {"NONE": "NONE", "RELU": "RELU", "RELU_N1_TO_1": "RELU1", "RELU6": "RELU6"}
"""Neuron's words for what operators end with."""

SAME: Mapping[type[TflOp], type[NeuronOp]] = {
    tfl.AbsOp: neuron.AbsOp,
    tfl.HardSwishOp: neuron.HardSwishOp,
    tfl.LogisticOp: neuron.LogisticOp,
    tfl.ReluOp: neuron.ReluOp,
    tfl.RsqrtOp: neuron.RsqrtOp,
    tfl.SqrtOp: neuron.SqrtOp,
    tfl.TanhOp: neuron.TanhOp,
    tfl.CastOp: neuron.CastOp,
    tfl.DequantizeOp: neuron.DequantizeOp,
    tfl.QuantizeOp: neuron.QuantizeOp,
    tfl.GreaterOp: neuron.GreaterOp,
    tfl.LessOp: neuron.LessOp,
    tfl.MaximumOp: neuron.MaximumOp,
    tfl.MinimumOp: neuron.MinimumOp,
    tfl.SquaredDifferenceOp: neuron.SquaredDifferenceOp,
    tfl.ReshapeOp: neuron.ReshapeOp,
    tfl.TransposeOp: neuron.TransposeOp,
    tfl.PadV2Op: neuron.PadV2Op,
}
"""Operators that are one operation without scalars."""

FUSED: Mapping[type[TflOp], type[NeuronOp]] = {
    tfl.AddOp: neuron.AddOp,
    tfl.DivOp: neuron.DivOp,
    tfl.MulOp: neuron.MulOp,
    tfl.SubOp: neuron.SubOp,
}
"""Those that may end with an activation."""

REDUCED: Mapping[type[TflOp], type[NeuronOp]] = {
    tfl.MeanOp: neuron.MeanOp,
    tfl.SumOp: neuron.ReduceSumOp,
    tfl.ReduceMaxOp: neuron.ReduceMaxOp,
}
POOLS: Mapping[type[TflOp], type[NeuronOp]] = {
    tfl.AveragePool2dOp: neuron.AveragePool2dOp,
    tfl.MaxPool2dOp: neuron.MaxPool2dOp,
}


def _same(op: TflOp, b: Builder) -> list[SSAValue]:
    return b.call(SAME[type(op)], op, op.operands)


def _fused(op: TflOp, b: Builder) -> list[SSAValue]:
    return b.call(FUSED[type(op)], op, op.operands, fuse=_fuse(op))


def _reduced(op: Any, b: Builder) -> list[SSAValue]:
    kept = abs(op.keep_dims.value.data)
    whole = isinstance(op, tfl.MeanOp)
    return b.call(REDUCED[type(op)], op, op.operands, keep_dims=kept if whole else bool(kept))


def _gelu(op: tfl.GeluOp, b: Builder) -> list[SSAValue]:
    if not op.approximate:
        raise refused(op, "the plugin computes the approximation", "use approximate-gelu before")
    return b.call(neuron.GeluOp, op, [op.x], approximate=1)


def _softmax(op: tfl.SoftmaxOp, b: Builder) -> list[SSAValue]:
    return b.call(neuron.SoftmaxOp, op, [op.x], beta=op.beta)


def _fully_connected(op: tfl.FullyConnectedOp, b: Builder) -> list[SSAValue]:
    bias = b.zeros(extents(op.weights)[0], op) if op.bias is None else op.bias
    return b.call(neuron.FullyConnectedOp, op, [op.x, op.weights, bias], fuse=_fuse(op))


def _batch_matmul(op: tfl.BatchMatmulOp, b: Builder) -> list[SSAValue]:
    turned = {"adj_x": op.adj_x, "adj_y": op.adj_y}
    return b.call(neuron.BatchMatmulOp, op, [op.a, op.b], **turned)


def _concatenation(op: tfl.ConcatenationOp, b: Builder) -> list[SSAValue]:
    if _fuse(op) != "NONE":
        raise refused(op, "it ends with an activation", "make that an operator of its own")
    return b.call(neuron.ConcatenationOp, op, [*op.xs], axis=op.axis)


def _split(op: tfl.SplitOp, b: Builder) -> list[SSAValue]:
    return b.call(neuron.SplitOp, op, [op.x, op.axis], num_splits=op.num_splits)


def _strided_slice(op: tfl.StridedSliceOp, b: Builder) -> list[SSAValue]:
    masks = {"begin_mask": 0, "end_mask": 0, "shrink_axis_mask": 0}
    return b.call(neuron.StridedSliceOp, op, op.operands, **masks)


def _conv(op: Any, b: Builder) -> list[SSAValue]:
    depthwise = isinstance(op, tfl.DepthwiseConv2dOp)
    if not depthwise and extents(op.x)[3] != extents(op.filter)[3]:
        raise refused(op, "it has groups", "make a convolution of each")
    own = {"multiplier": op.depth_multiplier} if depthwise else {}
    bias: SSAValue = b.zeros(extents(op.y)[3], op) if op.bias is None else op.bias
    return b.call(
        neuron.DepthwiseConv2dOp if depthwise else neuron.Conv2dOp,
        op,
        [op.x, op.filter, bias],
        **_window(op),
        **own,
        nchw=False,
        dilation_width=op.dilation_w_factor,
        dilation_height=op.dilation_h_factor,
    )


def _pool(op: Any, b: Builder) -> list[SSAValue]:
    size = {"filter_width": op.filter_width, "filter_height": op.filter_height}
    return b.call(POOLS[type(op)], op, [op.x], **_window(op), **size)


def _codes(op: tfl.PseudoQconstOp, b: Builder) -> list[SSAValue]:
    if op.block_size.value.data:
        reason = "the plugin stops at scales of blocks"
        raise refused(op, reason, "give a recipe with a scale for each row")
    if element_of(op.codes) == i4 and b.adapter < CHANNEL_ADAPTER:
        known = ".".join(map(str, b.adapter))
        reason = f"the plugin loses the scales of 4 bits with MediaTek's library {known}"
        raise refused(op, reason, "give a recipe of 8 bits, or name an adapter of 8.2.28")
    if op.scales is None:
        return _of_one_scale(op, b)
    codes: SSAValue = op.codes
    if element_of(codes) == i64:
        codes = b.constant(constant_array(codes, b.store).astype(np.int32))
    if element_of(codes) == i32 and b.adapter < CHANNEL_ADAPTER:
        return [codes]
    numbers = numbers_of(op.scales, b.store)
    assert numbers is not None
    scale = b.constant(numbers.astype(np.float32).reshape(-1))
    made = neuron.SymmPerChannelOp.call(
        [codes, scale],
        tensor_of(element_of(codes), extents(codes)),
        channel_dim=op.quantized_dimension,
        adapter=b.adapter,
    )
    b.insert(made)
    return [made.weights]


def _of_one_scale(op: tfl.PseudoQconstOp, b: Builder) -> list[SSAValue]:
    """Codes that are a constant; a number gets one axis."""
    assert op.scale is not None
    assert op.zero_point is not None
    codes = b.with_axis(op.codes)
    made = neuron.QuantConstantOp.call(
        [codes], codes.type, scale=op.scale, zero_point=op.zero_point
    )
    b.insert(made)
    return [made.y]


def _window(op: Any) -> dict[str, Any]:
    return {
        "padding": op.padding,
        "stride_width": op.stride_w,
        "stride_height": op.stride_h,
        "fuse": _fuse(op),
    }


def _fuse(op: Any) -> str:
    word: str = op.fused_activation_function.data
    if word not in FUSES:
        raise refused(op, f"Neuron fuses no {word}", "make that an operator of its own")
    return FUSES[word]


def refused(op: Operation, why: str, remedy: str) -> CompileError:
    """What to raise at an operator that the plugin stops at, or changes."""
    text = f"'{op.name}' has no home on 'neuron': {why}"
    return CompileError("MLC-R001", text, location=location_of(op), remedy=remedy)


LEGALISATIONS: Mapping[type[Operation], Legalisation] = {
    **dict.fromkeys(SAME, _same),
    **dict.fromkeys(FUSED, _fused),
    **dict.fromkeys(REDUCED, _reduced),
    **dict.fromkeys(POOLS, _pool),
    tfl.GeluOp: _gelu,
    tfl.SoftmaxOp: _softmax,
    tfl.FullyConnectedOp: _fully_connected,
    tfl.BatchMatmulOp: _batch_matmul,
    tfl.ConcatenationOp: _concatenation,
    tfl.SplitOp: _split,
    tfl.StridedSliceOp: _strided_slice,
    tfl.Conv2dOp: _conv,
    tfl.DepthwiseConv2dOp: _conv,
    tfl.PseudoQconstOp: _codes,
}
"""The function that makes the operations of each operator that the plugin takes."""
