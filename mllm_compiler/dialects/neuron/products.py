"""Products, normalisations and codes, as operations of Neuron."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import ClassVar, Final

from xdsl.dialects.builtin import (
    BoolAttr,
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    StringAttr,
    TensorType,
)
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def

from mllm_compiler.dialects.calls import ints
from mllm_compiler.dialects.mllm.contract import all_agree, broadcast_dims, check
from mllm_compiler.dialects.neuron.base import (
    CHANNELS,
    CODED,
    ConversionOp,
    NeuronOp,
    Scalar,
    UnaryOp,
)
from mllm_compiler.dialects.tfl.base import listed
from mllm_compiler.dialects.types import element_of, extents, i8, shape_of

CHANNEL_ADAPTER: Final = (8, 2, 28)
"""The first version of MediaTek's library that is told scales of channels of 4 and 32 bits."""


@irdl_op_definition
class SymmPerChannelOp(NeuronOp):
    """Codes and a scale for each channel, as one constant: codes, scale -> weights.

    No operation: an operand of the type TENSOR_QUANT8_SYMM_PER_CHANNEL, or of that of 4 or 32 bits.

    C1  codes are i8, i4 or i32; weights has their type.
    C2  scale has as many elements as the axis channel_dim.
    C3  codes of 4 and 32 bits need an adapter of 8.2.28: the plugin tells older ones no scales.
    """

    name = "neuron.symm_per_channel"
    codes = operand_def(TensorType)
    scale = operand_def(TensorType)
    channel_dim = prop_def(IntegerAttr)
    adapter = prop_def(DenseArrayBase)
    weights = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 to C3."""
        element = element_of(self.codes)
        fits = element in CHANNELS.values() and self.weights.type == self.codes.type
        check(self, 1, fits, "codes are i8, i4 or i32, of the type of weights")
        channels = extents(self.codes)[self.channel_dim.value.data]
        check(self, 2, extents(self.scale) == (channels,), "a scale for each channel")
        scales = element == i8 or tuple(ints(self.adapter)) >= CHANNEL_ADAPTER
        check(self, 3, scales, "codes of 4 and 32 bits need an adapter of 8.2.28")


@irdl_op_definition
class QuantConstantOp(NeuronOp):
    """Codes that have one scale, as one constant: codes -> y.

    No operation: an operand of a type such as TENSOR_QUANT8_ASYMM_SIGNED.

    C1  codes are i8 or i16, and y has their type.
    C2  scale and zero_point stand.
    """

    name = "neuron.quant_constant"
    codes = operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        fits = element_of(self.codes) in CODED.values() and self.codes.type == self.y.type
        check(self, 1, fits, "codes are i8 or i16, of the type of y")
        says = self.scale is not None and self.zero_point is not None
        check(self, 2, says, "codes have a scale and a zero point")


@irdl_op_definition
class QuantizeOp(ConversionOp):
    """Reals as codes: x -> y.

    C1  y has the shape of x.
    """

    name = "neuron.quantize"
    CODE: ClassVar[int] = 72


@irdl_op_definition
class FullyConnectedOp(NeuronOp):
    """x [..., K] times the rows of weights [N, K], and bias [N] -> y [..., N].

    Of weights of codes and real x the product is one of reals, as far as is known here.

    C1  weights is [N, K], bias [N].
    C2  y is [..., N], or [rows, N].
    """

    name = "neuron.fully_connected"
    CODE: ClassVar[int] = 9
    SCALARS: ClassVar[Mapping[str, Scalar]] = {"fuse": Scalar.INT32}
    x = operand_def(TensorType)
    weights = operand_def(TensorType)
    bias = operand_def(TensorType)
    fuse = prop_def(StringAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        x, weights, y = extents(self.x), extents(self.weights), extents(self.y)
        fits = len(weights) == 2 and weights[1] == x[-1] and extents(self.bias) == weights[:1]
        check(self, 1, fits, "weights is [N, K], bias [N]")
        flat = len(y) == 2 and y[1] == weights[0]
        check(self, 2, flat or y == (*x[:-1], weights[0]), "y is [..., N], or [rows, N]")


@irdl_op_definition
class BatchMatmulOp(NeuronOp):
    """a [..., M, K] times b [..., K, N] -> y [..., M, N]; adj_x and adj_y turn a matrix.

    C1  the matrices fit, and what goes before them broadcasts.
    """

    name = "neuron.batch_matmul"
    CODE: ClassVar[int] = 102
    SCALARS: ClassVar[Mapping[str, Scalar]] = {"adj_x": Scalar.BOOL, "adj_y": Scalar.BOOL}
    a = operand_def(TensorType)
    b = operand_def(TensorType)
    adj_x = prop_def(BoolAttr)
    adj_y = prop_def(BoolAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        a, b = extents(self.a), extents(self.b)
        rows, inner = a[-2:][::-1] if self.adj_x else a[-2:]
        depth, columns = b[-2:][::-1] if self.adj_y else b[-2:]
        before = broadcast_dims(shape_of(self.a)[:-2], shape_of(self.b)[:-2])
        fits = inner == depth and before is not None
        fits = fits and all_agree(shape_of(self.y), (*(before or ()), rows, columns))
        check(self, 1, fits, "y is [..., M, N]")


@irdl_op_definition
class SoftmaxOp(UnaryOp):
    """e^(beta x), along the last axis as a part of its sum: x -> y.

    C1  x and y have one shape and type.
    """

    name = "neuron.softmax"
    CODE: ClassVar[int] = 25
    SCALARS: ClassVar[Mapping[str, Scalar]] = {"beta": Scalar.FLOAT32}
    beta = prop_def(FloatAttr)


@irdl_op_definition
class DequantizeOp(ConversionOp):
    """Halves, or codes with their scales, as f32: x -> y.

    C1  y has the shape of x.
    """

    name = "neuron.dequantize"
    CODE: ClassVar[int] = 6


class ReduceOp(NeuronOp, ABC):
    """Base of the ops that make one element of those along some axes: x, axes -> y."""

    SCALARS: ClassVar[Mapping[str, Scalar]] = {"keep_dims": Scalar.BOOL}
    x = operand_def(TensorType)
    axes = operand_def(TensorType)
    keep_dims = prop_def(IntegerAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        axes, x = listed(self.axes), extents(self.x)
        check(self, 1, axes is not None, "axes is a constant")
        dropped = {axis % len(x) for axis in axes or ()}
        kept = [1 if at in dropped else n for at, n in enumerate(x)]
        if not self.keep_dims.value.data:
            kept = [n for at, n in enumerate(x) if at not in dropped]
        check(self, 2, list(extents(self.y)) == kept, "y lacks the axes, or has 1 there")


@irdl_op_definition
class MeanOp(ReduceOp):
    """The mean along some axes: x, axes -> y.

    C1  axes is a constant.
    C2  y lacks the axes, or has 1 there with keep_dims.
    """

    name = "neuron.mean"
    CODE: ClassVar[int] = 31
    SCALARS: ClassVar[Mapping[str, Scalar]] = {"keep_dims": Scalar.INT32}


@irdl_op_definition
class ReduceSumOp(ReduceOp):
    """The sum along some axes: x, axes -> y.

    C1  axes is a constant.
    C2  y lacks the axes, or has 1 there with keep_dims.
    """

    name = "neuron.reduce_sum"
    CODE: ClassVar[int] = 80


@irdl_op_definition
class ReduceMaxOp(ReduceOp):
    """The largest along some axes: x, axes -> y.

    C1  axes is a constant.
    C2  y lacks the axes, or has 1 there with keep_dims.
    """

    name = "neuron.reduce_max"
    CODE: ClassVar[int] = 77
