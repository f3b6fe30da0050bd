"""Convolution, pooling and patch embedding, float32, channels first."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, StringAttr, TensorType
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, prop_def, result_def

from mllm_compiler.dialects.cpu.base import LANES, CpuOp, ints
from mllm_compiler.dialects.mllm.contract import all_agree, check
from mllm_compiler.dialects.types import shape_of

POOLS = ("max", "average")


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
    """Correlate [B, C, *spatial] with O filters over one, two or three spatial axes.

    `w` is the panel16 layout of [O, C * prod(kernel)] where groups is 1, else [O, C / g, *kernel].
    `pads` are the extents before each spatial axis, then those behind.

    C1  kernel, strides and dilations have one entry for each spatial axis, pads two.
    C2  groups divides the channels of x and out_channels.
    C3  bias is [out_channels].
    """

    name = "cpu.f32_conv"
    x = operand_def(TensorType)
    w = operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    kernel_shape = prop_def(DenseArrayBase)
    strides = prop_def(DenseArrayBase)
    pads = prop_def(DenseArrayBase)
    dilations = prop_def(DenseArrayBase)
    groups = prop_def(IntegerAttr)
    out_channels = prop_def(IntegerAttr)
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
