"""Convolutions and pooling of QNN: images are [batch, height, width, channels]."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import ClassVar, Final

from xdsl.dialects.builtin import BoolAttr, DenseArrayBase, IntegerAttr, TensorType
from xdsl.irdl import (
    AttrSizedOperandSegments,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
    result_def,
)

from mllm_compiler.dialects.calls import ints
from mllm_compiler.dialects.mllm.contract import check
from mllm_compiler.dialects.qnn.base import QnnOp
from mllm_compiler.dialects.types import extents

WINDOW: Final = {"stride": ("ui32", 1), "pad_amount": ("ui32", 2)}
FALSE = BoolAttr.from_bool(False)


def window_counts(
    sizes: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int] = (1, 1),
) -> tuple[int, ...]:
    """How many windows lie along each axis; pads are before and behind, axis by axis."""
    return tuple(
        (n + pads[2 * i] + pads[2 * i + 1] - (k - 1) * d - 1) // s + 1
        for i, (n, k, s, d) in enumerate(zip(sizes, kernel, stride, dilation, strict=True))
    )


class ConvolutionOp(QnnOp, ABC):
    """Base of convolutions: x [B, H, W, C], filter [h, w, ., N], bias [N]? -> y [B, H', W', N]."""

    TENSORS: ClassVar[dict[str, tuple[str, int]]] = {**WINDOW, "dilation": ("ui32", 1)}
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    x = operand_def(TensorType)
    weights = operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    stride = prop_def(DenseArrayBase)
    pad_amount = prop_def(DenseArrayBase)
    dilation = prop_def(DenseArrayBase)
    y = result_def(TensorType)

    def check_windows(self) -> None:
        """C2 and C3."""
        (batch, *sizes, _), (*kernel, _, n) = extents(self.x), extents(self.weights)
        check(self, 2, self.bias is None or extents(self.bias) == (n,), "bias is [N]")
        window = (ints(self.stride), ints(self.pad_amount), ints(self.dilation))
        counts = window_counts(sizes, kernel, *window)
        check(self, 3, extents(self.y) == (batch, *counts, n), "y is [B, H', W', N]")


@irdl_op_definition
class Conv2dOp(ConvolutionOp):
    """Convolution: x [B, H, W, C], weights [h, w, C / group, N], bias [N]? -> y [B, H', W', N].

    C1  weights is [h, w, C / group, N], with a group that divides N.
    C2  bias is [N].
    C3  y is [B, H', W', N].
    """

    name = "qnn.conv2d"
    group = prop_def(IntegerAttr)

    def check_contract(self) -> None:
        """C1 to C3."""
        x, weights, group = extents(self.x), extents(self.weights), self.group.value.data
        fits = len(x) == 4 == len(weights) and x[3] == weights[2] * group
        check(self, 1, fits and weights[3] % group == 0, "weights is [h, w, C / group, N]")
        self.check_windows()


@irdl_op_definition
class DepthWiseConv2dOp(ConvolutionOp):
    """A convolution for each channel: x [B, H, W, C], weights [h, w, 1, C], bias [C]? -> y.

    C1  weights is [h, w, 1, C]: HTP takes more, and computes something else.
    C2  bias is [C].
    C3  y is [B, H', W', C].
    """

    name = "qnn.depth_wise_conv2d"

    def check_contract(self) -> None:
        """C1 to C3."""
        x, weights = extents(self.x), extents(self.weights)
        fits = len(x) == 4 == len(weights) and weights[2] == 1 and weights[3] == x[3]
        check(self, 1, fits, "weights is [h, w, 1, C]")
        self.check_windows()


class PoolOp(QnnOp, ABC):
    """Base of pooling: x [B, H, W, C] -> y [B, H', W', C]."""

    TENSORS: ClassVar[dict[str, tuple[str, int]]] = {**WINDOW, "filter_size": ("ui32", 1)}
    x = operand_def(TensorType)
    filter_size = prop_def(DenseArrayBase)
    stride = prop_def(DenseArrayBase)
    pad_amount = prop_def(DenseArrayBase)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        batch, *sizes, channels = extents(self.x)
        window = (ints(self.filter_size), ints(self.stride), ints(self.pad_amount))
        counts = window_counts(sizes, *window)
        check(self, 1, extents(self.y) == (batch, *counts, channels), "y is [B, H', W', C]")


@irdl_op_definition
class PoolAvg2dOp(PoolOp):
    """The mean of each window, zeros around the image among its elements where that is asked.

    C1  y is [B, H', W', C].
    """

    name = "qnn.pool_avg2d"
    count_pad_for_edges = prop_def(BoolAttr, default_value=FALSE)


@irdl_op_definition
class PoolMax2dOp(PoolOp):
    """The largest of each window: x [B, H, W, C] -> y.

    C1  y is [B, H', W', C].
    """

    name = "qnn.pool_max2d"
