"""Convolution, pooling, resizing and patch embedding, float32, channels first."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, IntegerAttr, StringAttr, TensorType
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, prop_def, result_def

from mllm_compiler.dialects.calls import ints
from mllm_compiler.dialects.cpu.base import LANES, CpuOp
from mllm_compiler.dialects.cpu.linalg import ACTIVATIONS
from mllm_compiler.dialects.mllm.contract import all_agree, check
from mllm_compiler.dialects.types import shape_of

POOLS = ("max", "average")
MODES = ("nearest", "linear", "cubic")
COORDINATES = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")


@irdl_op_definition
class F32PatchEmbedOp(CpuOp):
    """Project square patches, row-major: pixels [B, C, H, W] -> [B, (H / p) * (W / p), n].

    C1  w is the panel16 layout of [n, C * p * p].
    C2  bias is [n].
    C3  y is [B, P, n].
    """

    name = "cpu.f32_patch_embed"
    pixels = operand_def(TensorType)
    w = operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    patch = prop_def(IntegerAttr)
    n = prop_def(IntegerAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 to C3."""
        pixels, n, p = shape_of(self.pixels), self.n.value.data, self.patch.value.data
        panels = (-(-n // LANES), pixels[1] * (p * p), LANES)
        check(self, 1, all_agree(shape_of(self.w), panels), "w is [ceil(n / 16), C * p * p, 16]")
        fits = self.bias is None or all_agree(shape_of(self.bias), (n,))
        check(self, 2, fits, "bias is [n]")
        patches = (pixels[2] // p) * (pixels[3] // p)
        check(self, 3, all_agree(shape_of(self.y), (pixels[0], patches, n)), "y is [B, P, n]")


@irdl_op_definition
class F32ConvOp(CpuOp):
    """Correlate [B, C, *spatial] with O filters over one, two or three axes; then an activation.

    `w` is the panel16 layout of [O, C * prod(kernel)] where groups is 1, else [O, C / g, *kernel].
    `pads` are the extents before each spatial axis, then those behind.

    C1  kernel, strides and dilations have one entry for each spatial axis, pads two.
    C2  groups divides the channels of x and out_channels.
    C3  bias is [out_channels].
    """

    name = "cpu.f32_conv"
    ENUMS: ClassVar[dict[str, tuple[str, ...]]] = {"activation": ACTIVATIONS}
    x = operand_def(TensorType)
    w = operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    kernel_shape = prop_def(DenseArrayBase)
    strides = prop_def(DenseArrayBase)
    pads = prop_def(DenseArrayBase)
    dilations = prop_def(DenseArrayBase)
    groups = prop_def(IntegerAttr)
    out_channels = prop_def(IntegerAttr)
    activation = prop_def(StringAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 to C3."""
        spatial = len(shape_of(self.x)) - 2
        counts = [len(ints(a)) for a in (self.kernel_shape, self.strides, self.dilations)]
        fits = counts == [spatial] * 3 and len(ints(self.pads)) == 2 * spatial
        check(self, 1, fits, "one entry for each spatial axis, two for pads")
        channels, groups = shape_of(self.x)[1].as_int() or 0, self.groups.value.data
        even = groups > 0 and not channels % groups and not self.out_channels.value.data % groups
        check(self, 2, even, "groups divides the channels of x and out_channels")
        out = (self.out_channels.value.data,)
        fits = self.bias is None or all_agree(shape_of(self.bias), out)
        check(self, 3, fits, "bias is [out_channels]")


@irdl_op_definition
class F32PoolOp(CpuOp):
    """The largest or the mean element under a moving window over the spatial axes.

    C1  kernel and strides have one entry for each spatial axis, pads two.
    """

    name = "cpu.f32_pool"
    ENUMS: ClassVar[dict[str, tuple[str, ...]]] = {"kind": POOLS}
    x = operand_def(TensorType)
    kind = prop_def(StringAttr)
    kernel_shape = prop_def(DenseArrayBase)
    strides = prop_def(DenseArrayBase)
    pads = prop_def(DenseArrayBase)
    count_include_pad = prop_def(IntegerAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        spatial = len(shape_of(self.x)) - 2
        counts = [len(ints(a)) for a in (self.kernel_shape, self.strides)]
        fits = counts == [spatial] * 2 and len(ints(self.pads)) == 2 * spatial
        check(self, 1, fits, "one entry for each spatial axis, two for pads")


@irdl_op_definition
class F32ResizeOp(CpuOp):
    """Read the lines of one axis at the points of another grid, as `mllm.resize` says.

    `scale` is the ratio of the extents where it is 0.

    C1  axis names an axis of x.
    C2  y has the dims of x but along axis.
    """

    name = "cpu.f32_resize"
    ENUMS: ClassVar[dict[str, tuple[str, ...]]] = {"mode": MODES, "coordinates": COORDINATES}
    x = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    mode = prop_def(StringAttr)
    coordinates = prop_def(StringAttr)
    cubic_coeff = prop_def(FloatAttr)
    scale = prop_def(FloatAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        x, y, axis = shape_of(self.x), shape_of(self.y), self.axis.value.data
        check(self, 1, 0 <= axis < len(x), "axis names an axis of x")
        fits = len(x) == len(y) and all_agree(
            (*x[:axis], *x[axis + 1 :]), (*y[:axis], *y[axis + 1 :])
        )
        check(self, 2, fits, "y has the dims of x but along axis")
