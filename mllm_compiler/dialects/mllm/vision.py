"""Images and sound in the `mllm` dialect: patches, convolution, pooling, resizing."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import (
    BoolAttr,
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    TensorType,
    f64,
)
from xdsl.ir import SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure

from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.dialects.mllm.contract import (
    agree,
    all_agree,
    check,
    float_list,
    int_list,
    integer,
    integers,
    number,
)
from mllm_compiler.dialects.mllm.kinds import (
    Coordinates,
    CoordinatesAttr,
    PoolKind,
    PoolKindAttr,
    ResizeMode,
    ResizeModeAttr,
)
from mllm_compiler.dialects.types import Tensor, element_of, is_float, rank_of, shape_of


def window_dims(
    dims: Sequence[Dim],
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
) -> tuple[Dim, ...]:
    """The spatial dims that a sliding window leaves; pads are all begins, then all ends."""
    n = len(kernel)
    return tuple(
        (d + (pads[i] + pads[n + i] - dilations[i] * (kernel[i] - 1) - 1)) // strides[i] + 1
        for i, d in enumerate(dims)
    )


Window = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Strides, pads and dilations."""


def filters_fit(x: Sequence[Dim], weight: Sequence[Dim], groups: int) -> bool:
    """Whether weight is [O, C/groups, *k] where x is [B, C, *in], and groups divides O."""
    fits = len(weight) == len(x) >= 3 and groups > 0 and agree(weight[1] * groups, x[1])
    out = weight[0].as_int()
    return fits and (out is None or out % groups == 0)


def windows_fit(n: int, window: Window) -> bool:
    """Whether strides and dilations have n positive entries, and pads 2 n."""
    strides, pads, dilations = window
    fits = (len(strides), len(pads), len(dilations)) == (n, 2 * n, n)
    return fits and min(*strides, *dilations) > 0


def conv_dims(x: Sequence[Dim], weight: Sequence[Dim], window: Window) -> tuple[Dim, ...]:
    """The dims of a convolution's result."""
    kernel = [k.as_int() or 0 for k in weight[2:]]
    return (x[0], weight[0], *window_dims(x[2:], kernel, *window))


@irdl_op_definition
class PatchEmbedOp(IRDLOperation):
    """Project the patches of an image to tokens (Dosovitskiy et al. 2021).

    pixels [B, C, H, W], weight [N, C, p, p], bias? [N], cls? [1, 1, N], position? -> [B, P, N], or
    [B, P + 1, N] with cls before the patches; P = H/p * W/p, row by row. position is [1, P, N], or
    [1, P + 1, N] with cls, and is added to all tokens.

    C1  pixels are rank 4.
    C2  weight is [N, C, p, p] and bias [N].
    C3  cls is [1, 1, N], and position [1, tokens, N].
    C4  the result is [B, tokens, N] of the type of pixels, which is floating point.
    """

    name = "mllm.patch_embed"

    pixels = operand_def(TensorType)
    weight = operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    cls = opt_operand_def(TensorType)
    position = opt_operand_def(TensorType)
    patch = prop_def(IntegerAttr)
    result = result_def(TensorType)

    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
    traits = traits_def(Pure())
    assembly_format = (
        "$pixels `,` $weight (`bias` `(` $bias^ `:` type($bias) `)`)? "
        "(`cls` `(` $cls^ `:` type($cls) `)`)? "
        "(`position` `(` $position^ `:` type($position) `)`)? attr-dict `:` "
        "`(` type($pixels) `,` type($weight) `)` `->` type($result)"
    )

    def __init__(
        self,
        pixels: SSAValue,
        weight: SSAValue,
        *,
        bias: SSAValue | None = None,
        cls: SSAValue | None = None,
        position: SSAValue | None = None,
    ) -> None:
        batch, _, height, width = shape_of(pixels)
        size = shape_of(weight)[2].as_int()
        if size is None:
            raise ValueError("the patch size is not static")
        tokens = (height // size) * (width // size) + (0 if cls is None else 1)
        dims = (batch, tokens, shape_of(weight)[0])
        super().__init__(
            operands=[pixels, weight, bias, cls, position],
            properties={"patch": integer(size)},
            result_types=[tensor_of(element_of(pixels), dims)],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        pixels, weight, patch = shape_of(self.pixels), shape_of(self.weight), self.patch.value.data
        check(self, 1, len(pixels) == 4, "pixels must be [B, C, H, W]")
        fits = len(weight) == 4 and all_agree(weight[1:], (pixels[1], patch, patch))
        fits &= self.bias is None or all_agree(shape_of(self.bias), weight[:1])
        check(self, 2, fits, "weight must be [N, C, p, p] and bias [N]")
        tokens = (pixels[2] // patch) * (pixels[3] // patch) + (0 if self.cls is None else 1)
        fits = self.cls is None or all_agree(shape_of(self.cls), (1, 1, weight[0]))
        fits &= self.position is None or all_agree(shape_of(self.position), (1, tokens, weight[0]))
        check(self, 3, fits, "cls must be [1, 1, N] and position [1, tokens, N]")
        fits = all_agree(shape_of(self.result), (pixels[0], tokens, weight[0]))
        fits &= element_of(self.result) == element_of(self.pixels)
        check(self, 4, fits and is_float(element_of(self.pixels)), "the result: [B, tokens, N]")


@irdl_op_definition
class ConvOp(IRDLOperation):
    """Convolve (ONNX Conv): x [B, C, *in], weight [O, C/groups, *k], bias? [O] -> [B, O, *out].

    pads are all begins, then all ends; out = (in + pads - dilation (k - 1) - 1) // stride + 1.

    C1  weight has the rank of x, groups divides O, and weight is [O, C/groups, *k].
    C2  bias is [O].
    C3  strides and dilations have one entry an axis, pads two.
    C4  the result is [B, O, *out] of the type of x, which is floating point.
    """

    name = "mllm.conv"

    x = operand_def(TensorType)
    weight = operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    strides = prop_def(DenseArrayBase)
    pads = prop_def(DenseArrayBase)
    dilations = prop_def(DenseArrayBase)
    groups = prop_def(IntegerAttr)
    result = result_def(TensorType)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = (
        "$x `,` $weight (`,` $bias^)? attr-dict `:` functional-type(operands, results)"
    )

    def __init__(
        self,
        x: SSAValue,
        weight: SSAValue,
        bias: SSAValue | None = None,
        *,
        strides: Sequence[int],
        pads: Sequence[int],
        dilations: Sequence[int],
        groups: int = 1,
    ) -> None:
        window = (tuple(strides), tuple(pads), tuple(dilations))
        dims = conv_dims(shape_of(x), shape_of(weight), window)
        super().__init__(
            operands=[x, weight, bias],
            properties={
                "strides": integers(strides),
                "pads": integers(pads),
                "dilations": integers(dilations),
                "groups": integer(groups),
            },
            result_types=[tensor_of(element_of(x), dims)],
        )

    @property
    def window(self) -> Window:
        """Strides, pads and dilations as integers."""
        return int_list(self.strides), int_list(self.pads), int_list(self.dilations)

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        x, weight, groups = shape_of(self.x), shape_of(self.weight), self.groups.value.data
        check(self, 1, filters_fit(x, weight, groups), "weight: [O, C/groups, *k]")
        fits = self.bias is None or all_agree(shape_of(self.bias), weight[:1])
        check(self, 2, fits, "bias must be [O]")
        check(self, 3, windows_fit(len(x) - 2, self.window), "strides, pads and dilations")
        dims = conv_dims(x, weight, self.window)
        fits = all_agree(shape_of(self.result), dims) and is_float(element_of(self.x))
        fits &= element_of(self.x) == element_of(self.weight) == element_of(self.result)
        check(self, 4, fits, "the result must be [B, O, *out]")


@irdl_op_definition
class PoolOp(IRDLOperation):
    """Fold each window of an image into one element (ONNX MaxPool, AveragePool).

    x [B, C, *in] -> [B, C, *out], out as of `mllm.conv`. Padding counts in an average only with
    count_include_pad, and never in a maximum.

    C1  kernel and strides have one entry an axis, pads two.
    C2  the result is [B, C, *out] of the type of x.
    """

    name = "mllm.pool"

    kind = prop_def(PoolKindAttr)
    x = operand_def(TensorType)
    kernel = prop_def(DenseArrayBase)
    strides = prop_def(DenseArrayBase)
    pads = prop_def(DenseArrayBase)
    count_include_pad = prop_def(BoolAttr, default_value=BoolAttr.from_bool(False))
    result = result_def(TensorType)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "$kind $x attr-dict `:` functional-type(operands, results)"

    def __init__(
        self,
        kind: PoolKind,
        x: SSAValue,
        *,
        kernel: Sequence[int],
        strides: Sequence[int],
        pads: Sequence[int],
        count_include_pad: bool = False,
    ) -> None:
        dims, ones = shape_of(x), [1] * len(kernel)
        spatial = window_dims(dims[2:], kernel, strides, pads, ones)
        super().__init__(
            operands=[x],
            properties={
                "kind": PoolKindAttr(kind),
                "kernel": integers(kernel),
                "strides": integers(strides),
                "pads": integers(pads),
                "count_include_pad": BoolAttr.from_bool(count_include_pad),
            },
            result_types=[tensor_of(element_of(x), (*dims[:2], *spatial))],
        )

    @property
    def window(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Kernel, strides and pads as integers."""
        return int_list(self.kernel), int_list(self.strides), int_list(self.pads)

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        dims, (kernel, strides, pads) = shape_of(self.x), self.window
        n = len(dims) - 2
        fits = n > 0 and (len(kernel), len(strides), len(pads)) == (n, n, 2 * n)
        check(self, 1, fits and min(*kernel, *strides) > 0, "kernel, strides and pads")
        spatial = window_dims(dims[2:], kernel, strides, pads, [1] * n)
        fits = all_agree(shape_of(self.result), (*dims[:2], *spatial))
        fits &= element_of(self.x) == element_of(self.result)
        check(self, 2, fits, "the result must be [B, C, *out] of the type of x")


@irdl_op_definition
class ResizeOp(IRDLOperation):
    """Read an image at the points of another grid (ONNX Resize): x [B, C, *in] -> [B, C, *out].

    The result type gives the grid; scale is out / in unless `scales` says otherwise. `cubic` has
    the coefficient cubic_coeff; borders repeat. `nearest` takes the grid point below half_pixel
    ties ("round_prefer_floor").

    C1  the result has the rank, batch, channels and type of x, which is floating point.
    C2  scales, where given, have one entry an axis.
    """

    name = "mllm.resize"

    mode = prop_def(ResizeModeAttr)
    coordinates = prop_def(CoordinatesAttr)
    x = operand_def(TensorType)
    cubic_coeff = prop_def(FloatAttr, default_value=number(-0.75))
    scales = prop_def(DenseArrayBase)
    result = result_def(TensorType)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "$mode $coordinates $x attr-dict `:` functional-type(operands, results)"

    def __init__(
        self,
        mode: ResizeMode,
        coordinates: Coordinates,
        x: SSAValue,
        result: Tensor,
        *,
        scales: Sequence[float] = (),
        cubic_coeff: float = -0.75,
    ) -> None:
        super().__init__(
            operands=[x],
            properties={
                "mode": ResizeModeAttr(mode),
                "coordinates": CoordinatesAttr(coordinates),
                "cubic_coeff": number(cubic_coeff),
                "scales": DenseArrayBase.from_list(f64, scales),
            },
            result_types=[result],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        x, result = shape_of(self.x), shape_of(self.result)
        fits = len(x) == len(result) == rank_of(self.x) and all_agree(x[:2], result[:2])
        fits &= element_of(self.x) == element_of(self.result) and is_float(element_of(self.x))
        check(self, 1, fits, "the result must have rank, batch, channels and type of x")
        check(self, 2, len(float_list(self.scales)) in (0, len(x) - 2), "one scale an axis")
