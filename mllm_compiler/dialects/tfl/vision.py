"""Convolutions and pooling of TFLite: images are [batch, height, width, channels]."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar, Final

from xdsl.dialects.builtin import IntegerAttr, StringAttr, TensorType
from xdsl.irdl import (
    AttrSizedOperandSegments,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
    result_def,
)

from mllm_compiler.dialects.mllm.contract import check
from mllm_compiler.dialects.tfl.base import FUSED, PADDINGS, TflOp
from mllm_compiler.dialects.types import extents

WINDOW: Final[dict[str, tuple[str, ...]]] = {**FUSED, "padding": PADDINGS}


def window_count(extent: int, kernel: int, stride: int, dilation: int, padding: str) -> int:
    """How many windows lie along an axis."""
    if padding == "SAME":
        return -(-extent // stride)
    return (extent - (kernel - 1) * dilation - 1) // stride + 1


class WindowedOp(TflOp, ABC):
    """Base of convolutions: x [B, H, W, C], filter [., h, w, .], bias [N] -> y [B, H', W', N]."""

    ENUMS: ClassVar[dict[str, tuple[str, ...]]] = WINDOW
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    x = operand_def(TensorType)
    filter = operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    padding = prop_def(StringAttr)
    stride_w = prop_def(IntegerAttr)
    stride_h = prop_def(IntegerAttr)
    fused_activation_function = prop_def(StringAttr, default_value=StringAttr("NONE"))
    dilation_w_factor = prop_def(IntegerAttr)
    dilation_h_factor = prop_def(IntegerAttr)
    y = result_def(TensorType)

    def check_windows(self, n: int) -> None:
        """C2 and C3, with n channels in the result."""
        check(self, 2, self.bias is None or extents(self.bias) == (n,), "bias is [N]")
        (batch, *sizes, _), (_, *kernel, _) = extents(self.x), extents(self.filter)
        strides = (self.stride_h.value.data, self.stride_w.value.data)
        dilations = (self.dilation_h_factor.value.data, self.dilation_w_factor.value.data)
        counts = (
            window_count(*axis, self.padding.data)
            for axis in zip(sizes, kernel, strides, dilations, strict=True)
        )
        check(self, 3, extents(self.y) == (batch, *counts, n), "y is [B, H', W', N]")


@irdl_op_definition
class Conv2dOp(WindowedOp):
    """Convolution: x [B, H, W, C], filter [N, h, w, C / groups], bias [N] -> y [B, H', W', N].

    C1  filter is [N, h, w, C / groups], with groups that divide N.
    C2  bias is [N].
    C3  y is [B, H', W', N].
    """

    name = "tfl.conv_2d"

    def check_contract(self) -> None:
        """C1 to C3."""
        x, filter = extents(self.x), extents(self.filter)
        fits = len(x) == 4 == len(filter) and x[3] % filter[3] == 0
        fits = fits and filter[0] % (x[3] // filter[3]) == 0
        check(self, 1, fits, "filter is [N, h, w, C / groups]")
        self.check_windows(filter[0])


@irdl_op_definition
class DepthwiseConv2dOp(WindowedOp):
    """A convolution for each channel: x [B, H, W, C], filter [1, h, w, N], bias [N] -> y.

    C1  filter is [1, h, w, C depth_multiplier].
    C2  bias is [N].
    C3  y is [B, H', W', N].
    """

    name = "tfl.depthwise_conv_2d"
    depth_multiplier = prop_def(IntegerAttr)

    def check_contract(self) -> None:
        """C1 to C3."""
        x, filter = extents(self.x), extents(self.filter)
        fits = len(x) == 4 == len(filter) and filter[0] == 1
        fits = fits and filter[3] == x[3] * self.depth_multiplier.value.data
        check(self, 1, fits, "filter is [1, h, w, C depth_multiplier]")
        self.check_windows(filter[3])


class Pool2dOp(TflOp, ABC):
    """Base of pooling: x [B, H, W, C] -> y [B, H', W', C]."""

    ENUMS: ClassVar[dict[str, tuple[str, ...]]] = WINDOW
    x = operand_def(TensorType)
    padding = prop_def(StringAttr)
    stride_w = prop_def(IntegerAttr)
    stride_h = prop_def(IntegerAttr)
    filter_width = prop_def(IntegerAttr)
    filter_height = prop_def(IntegerAttr)
    fused_activation_function = prop_def(StringAttr, default_value=StringAttr("NONE"))
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        x, padding = extents(self.x), self.padding.data
        kernel, stride = self.filter_height.value.data, self.stride_h.value.data
        high = window_count(x[1], kernel, stride, 1, padding)
        kernel, stride = self.filter_width.value.data, self.stride_w.value.data
        wide = window_count(x[2], kernel, stride, 1, padding)
        check(self, 1, extents(self.y) == (x[0], high, wide, x[3]), "y is [B, H', W', C]")


@irdl_op_definition
class AveragePool2dOp(Pool2dOp):
    """The mean of each window, of the elements that are inside: x [B, H, W, C] -> y.

    C1  y is [B, H', W', C].
    """

    name = "tfl.average_pool_2d"


@irdl_op_definition
class MaxPool2dOp(Pool2dOp):
    """The largest of each window: x [B, H, W, C] -> y.

    C1  y is [B, H', W', C].
    """

    name = "tfl.max_pool_2d"
