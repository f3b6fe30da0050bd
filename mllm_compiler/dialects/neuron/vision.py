"""Convolutions and pooling of Neuron: images are [batch, height, width, channels]."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import ClassVar

from xdsl.dialects.builtin import BoolAttr, IntegerAttr, StringAttr, TensorType
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def

from mllm_compiler.dialects.mllm.contract import check
from mllm_compiler.dialects.neuron.base import NeuronOp, Scalar
from mllm_compiler.dialects.tfl.vision import window_count
from mllm_compiler.dialects.types import extents


class WindowedOp(NeuronOp, ABC):
    """Base of the ops on windows of an image."""

    x = operand_def(TensorType)
    padding = prop_def(StringAttr)
    stride_width = prop_def(IntegerAttr)
    stride_height = prop_def(IntegerAttr)
    fuse = prop_def(StringAttr)
    y = result_def(TensorType)

    def strides(self) -> tuple[int, int]:
        """How far windows are apart, down and right."""
        return self.stride_height.value.data, self.stride_width.value.data

    def dilations(self) -> tuple[int, int]:
        """How far elements of a window are apart, down and right."""
        return 1, 1

    def windows(self, kernel: tuple[int, int]) -> list[int]:
        """How many windows lie down and right."""
        sizes, word = extents(self.x)[1:3], self.padding.data
        parts = zip(sizes, kernel, self.strides(), self.dilations(), strict=True)
        return [window_count(*part, word) for part in parts]


class ConvolutionOp(WindowedOp, ABC):
    """Base of convolutions: x [B, H, W, C], filter [., h, w, .], bias [N] -> y [B, H', W', N]."""

    x = operand_def(TensorType)
    filter = operand_def(TensorType)
    bias = operand_def(TensorType)
    padding = prop_def(StringAttr)
    nchw = prop_def(BoolAttr)
    dilation_width = prop_def(IntegerAttr)
    dilation_height = prop_def(IntegerAttr)
    y = result_def(TensorType)

    def dilations(self) -> tuple[int, int]:
        """How far elements of a window are apart, down and right."""
        return self.dilation_height.value.data, self.dilation_width.value.data

    def check_windows(self, n: int) -> None:
        """C2 and C3, with n channels in the result."""
        check(self, 2, extents(self.bias) == (n,), "bias is [N]")
        _, high, wide, _ = extents(self.filter)
        y = (extents(self.x)[0], *self.windows((high, wide)), n)
        check(self, 3, extents(self.y) == y and not self.nchw, "y is [B, H', W', N]")


@irdl_op_definition
class Conv2dOp(ConvolutionOp):
    """Convolution: x [B, H, W, C], filter [N, h, w, C], bias [N] -> y [B, H', W', N].

    C1  filter is [N, h, w, C].
    C2  bias is [N].
    C3  y is [B, H', W', N]; nchw is false.
    """

    name = "neuron.conv_2d"
    CODE: ClassVar[int] = 3
    SCALARS: ClassVar[Mapping[str, Scalar]] = {
        "padding": Scalar.INT32,
        "stride_width": Scalar.INT32,
        "stride_height": Scalar.INT32,
        "fuse": Scalar.INT32,
        "nchw": Scalar.BOOL,
        "dilation_width": Scalar.INT32,
        "dilation_height": Scalar.INT32,
    }

    def check_contract(self) -> None:
        """C1 to C3."""
        x, filter = extents(self.x), extents(self.filter)
        fits = len(x) == 4 == len(filter) and x[3] == filter[3]
        check(self, 1, fits, "filter is [N, h, w, C]")
        self.check_windows(filter[0])


@irdl_op_definition
class DepthwiseConv2dOp(ConvolutionOp):
    """A convolution for each channel: x [B, H, W, C], filter [1, h, w, N], bias [N] -> y.

    C1  filter is [1, h, w, C multiplier].
    C2  bias is [N].
    C3  y is [B, H', W', N]; nchw is false.
    """

    name = "neuron.depthwise_conv_2d"
    CODE: ClassVar[int] = 4
    SCALARS: ClassVar[Mapping[str, Scalar]] = {
        "padding": Scalar.INT32,
        "stride_width": Scalar.INT32,
        "stride_height": Scalar.INT32,
        "multiplier": Scalar.INT32,
        "fuse": Scalar.INT32,
        "nchw": Scalar.BOOL,
        "dilation_width": Scalar.INT32,
        "dilation_height": Scalar.INT32,
    }
    multiplier = prop_def(IntegerAttr)

    def check_contract(self) -> None:
        """C1 to C3."""
        x, filter = extents(self.x), extents(self.filter)
        fits = len(x) == 4 == len(filter) and filter[0] == 1
        fits = fits and filter[3] == x[3] * self.multiplier.value.data
        check(self, 1, fits, "filter is [1, h, w, C multiplier]")
        self.check_windows(filter[3])


class PoolOp(WindowedOp, ABC):
    """Base of pooling: x [B, H, W, C] -> y [B, H', W', C]."""

    SCALARS: ClassVar[Mapping[str, Scalar]] = {
        "padding": Scalar.INT32,
        "stride_width": Scalar.INT32,
        "stride_height": Scalar.INT32,
        "filter_width": Scalar.INT32,
        "filter_height": Scalar.INT32,
        "fuse": Scalar.INT32,
    }
    filter_width = prop_def(IntegerAttr)
    filter_height = prop_def(IntegerAttr)

    def kernel(self) -> tuple[int, int]:
        """The size of a window."""
        return self.filter_height.value.data, self.filter_width.value.data

    def check_contract(self) -> None:
        """C1."""
        batch, _, _, channels = extents(self.x)
        y = (batch, *self.windows(self.kernel()), channels)
        check(self, 1, extents(self.y) == y, "y is [B, H', W', C]")


@irdl_op_definition
class AveragePool2dOp(PoolOp):
    """The mean of each window, of the elements that are inside: x [B, H, W, C] -> y.

    C1  y is [B, H', W', C].
    """

    name = "neuron.average_pool_2d"
    CODE: ClassVar[int] = 1


@irdl_op_definition
class MaxPool2dOp(PoolOp):
    """The largest of each window: x [B, H, W, C] -> y.

    C1  y is [B, H', W', C].
    """

    name = "neuron.max_pool_2d"
    CODE: ClassVar[int] = 17
