"""Products of quantised operands in the `mllm` dialect: exact sums of integers."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, TensorType, i32
from xdsl.ir import SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure

from mllm_compiler.dialects.dims import tensor_of
from mllm_compiler.dialects.mllm.contract import (
    agree,
    all_agree,
    broadcast_dims,
    check,
    given,
    int_list,
    integer,
    integers,
)
from mllm_compiler.dialects.mllm.quant import are_codes, fits_codes, value_of
from mllm_compiler.dialects.mllm.vision import (
    Window,
    conv_dims,
    filters_fit,
    windows_fit,
)
from mllm_compiler.dialects.types import element_of, is_float, rank_of, shape_of


@irdl_op_definition
class QuantizedLinearOp(IRDLOperation):
    """Apply a quantised affine map to quantised rows: x [..., K], weight [N, K] -> [..., N].

    y[n] = x_scale sum_g weight_scale[n, g] s[n, g] + bias[n]
    s[n, g] = sum_k (x[k] - x_zero) (weight[n, k] - weight_zero[n, g])

    where k runs over block g of `block_size` inputs, or over all K. The sums s are exact; the rest
    has double precision and is rounded once. This is `mllm.linear` of two `mllm.dequantize`, in the
    order in which integer hardware computes it (Jacob et al. 2018, equation 7). Where x_scale or
    x_zero is [..., blocks], x has them for each block too, as massive activations want it, and
    y[n] = sum_g (s[n, g] weight_scale[n, g]) x_scale[g] + bias[n], summed from block 0 on.

    C1  weight is rank 2 and its second dim is the last of x.
    C2  x_scale and x_zero broadcast to [..., 1]; with block_size to [..., blocks of K], where they
        have the rank of x.
    C3  weight_scale and weight_zero broadcast to [N, 1]; with block_size to [N, blocks of K].
    C4  bias is [N].
    C5  the result is [..., N] with the leading dims of x.
    C6  x, weight and their zeros are integers, each zero of the type of what it belongs to; scales,
        bias and the result are floating point.
    """

    name = "mllm.quantized_linear"

    x = operand_def(TensorType)
    x_scale = operand_def(TensorType)
    weight = operand_def(TensorType)
    weight_scale = operand_def(TensorType)
    x_zero = opt_operand_def(TensorType)
    weight_zero = opt_operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    block_size = opt_prop_def(IntegerAttr)
    result = result_def(TensorType)

    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
    traits = traits_def(Pure())
    assembly_format = (
        "$x `,` $x_scale `,` $weight `,` $weight_scale "
        "(`x_zero` `(` $x_zero^ `:` type($x_zero) `)`)? "
        "(`weight_zero` `(` $weight_zero^ `:` type($weight_zero) `)`)? "
        "(`bias` `(` $bias^ `:` type($bias) `)`)? attr-dict `:` "
        "`(` type($x) `,` type($x_scale) `,` type($weight) `,` type($weight_scale) `)` "
        "`->` type($result)"
    )

    def __init__(
        self,
        x: SSAValue,
        x_scale: SSAValue,
        weight: SSAValue,
        weight_scale: SSAValue,
        *,
        x_zero: SSAValue | None = None,
        weight_zero: SSAValue | None = None,
        bias: SSAValue | None = None,
        block_size: int | None = None,
    ) -> None:
        dims = (*shape_of(x)[:-1], shape_of(weight)[0])
        super().__init__(
            operands=[x, x_scale, weight, weight_scale, x_zero, weight_zero, bias],
            properties=given(block_size=None if block_size is None else integer(block_size)),
            result_types=[tensor_of(element_of(x_scale), dims)],
        )

    def with_bias(self, bias: SSAValue) -> QuantizedLinearOp:
        """The same product with a bias."""
        return QuantizedLinearOp(
            self.x,
            self.x_scale,
            self.weight,
            self.weight_scale,
            x_zero=self.x_zero,
            weight_zero=self.weight_zero,
            bias=bias,
            block_size=value_of(self.block_size),
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        x, weight = shape_of(self.x), shape_of(self.weight)
        fits = len(weight) == 2 and len(x) >= 1 and agree(weight[1], x[-1])
        check(self, 1, fits, "weight must be [N, K] where x is [..., K]")
        size = value_of(self.block_size)
        fits = all(
            _is_for_rows(p, self.x) or (size and fits_codes(self.x, [p], len(x) - 1, size))
            for p in (self.x_scale, self.x_zero)
        )
        check(self, 2, fits, "x_scale and x_zero must be [..., 1], or [..., blocks]")
        sides = (self.weight_scale, self.weight_zero)
        fits = fits_codes(self.weight, sides, None if size is None else 1, size)
        fits &= size is not None or all(_is_for_rows(p, self.weight) for p in sides)
        check(self, 3, fits, "weight_scale and weight_zero must be [N, 1], or [N, blocks]")
        fits = self.bias is None or all_agree(shape_of(self.bias), weight[:1])
        check(self, 4, fits, "bias must be [N]")
        fits = all_agree(shape_of(self.result), (*x[:-1], weight[0]))
        check(self, 5, fits, "the result must be [..., N]")
        fits = are_codes(self.x, self.x_zero) and are_codes(self.weight, self.weight_zero)
        reals = (self.x_scale, self.weight_scale, self.bias, self.result)
        fits &= all(v is None or is_float(element_of(v)) for v in reals)
        check(self, 6, fits, "integers with zeros of their type, floats for the rest")


def _is_for_rows(parameter: SSAValue | None, codes: SSAValue) -> bool:
    """Whether a parameter has one element for each row, or one for all."""
    if parameter is None or rank_of(parameter) == 0:
        return True
    one = shape_of(parameter)[-1].as_int() == 1
    return one and fits_codes(codes, [parameter], None, None)


@irdl_op_definition
class IntegerMatmulOp(IRDLOperation):
    """Multiply matrices of codes: a [..., M, K], b [..., K, N] -> i32 [..., M, N] (MatMulInteger).

    The sum of (a - a_zero) (b - b_zero) is exact and must fit 32 bits.

    C1  a and b have rank 2 or more and the last dim of a is the one before the last of b.
    C2  the result is the broadcast of the leading dims, then [M, N].
    C3  a_zero broadcasts to [..., M, 1] and b_zero to [..., 1, N].
    C4  a and b are integers, each zero of the type of what it belongs to; the result is i32.
    """

    name = "mllm.integer_matmul"

    a = operand_def(TensorType)
    b = operand_def(TensorType)
    a_zero = opt_operand_def(TensorType)
    b_zero = opt_operand_def(TensorType)
    result = result_def(TensorType)

    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
    traits = traits_def(Pure())
    assembly_format = (
        "$a `,` $b (`a_zero` `(` $a_zero^ `:` type($a_zero) `)`)? "
        "(`b_zero` `(` $b_zero^ `:` type($b_zero) `)`)? attr-dict `:` "
        "`(` type($a) `,` type($b) `)` `->` type($result)"
    )

    def __init__(
        self,
        a: SSAValue,
        b: SSAValue,
        *,
        a_zero: SSAValue | None = None,
        b_zero: SSAValue | None = None,
    ) -> None:
        left, right = shape_of(a), shape_of(b)
        batch = broadcast_dims(left[:-2], right[:-2])
        if batch is None:
            raise ValueError(f"{a.type} and {b.type} do not broadcast")
        super().__init__(
            operands=[a, b, a_zero, b_zero],
            result_types=[tensor_of(i32, (*batch, left[-2], right[-1]))],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        a, b = shape_of(self.a), shape_of(self.b)
        fits = min(len(a), len(b)) >= 2 and agree(a[-1], b[-2])
        check(self, 1, fits, "a must be [..., M, K] and b [..., K, N]")
        batch = broadcast_dims(a[:-2], b[:-2])
        fits = batch is not None and all_agree(shape_of(self.result), (*batch, a[-2], b[-1]))
        check(self, 2, fits, "the result must be [..., M, N]")
        fits = _is_for_rows(self.a_zero, self.a) and _is_for_columns(self.b_zero, self.b)
        check(self, 3, fits, "a_zero must broadcast to [..., M, 1] and b_zero to [..., 1, N]")
        fits = are_codes(self.a, self.a_zero) and are_codes(self.b, self.b_zero)
        check(self, 4, fits and element_of(self.result) == i32, "integers in, i32 out")


def _is_for_columns(parameter: SSAValue | None, codes: SSAValue) -> bool:
    """Whether a parameter has one element for each column, or one for all."""
    if parameter is None:
        return True
    dims = shape_of(parameter)
    one = len(dims) < 2 or dims[-2].as_int() == 1
    return one and fits_codes(codes, [parameter], None, None)


@irdl_op_definition
class IntegerConvOp(IRDLOperation):
    """Convolve codes: x [B, C, *in], weight [O, C/groups, *k] -> i32 [B, O, *out] (ConvInteger).

    The sum of (x - x_zero) (weight - weight_zero) is exact and must fit 32 bits; padding counts as
    x_zero. Windows are as in `mllm.conv`.

    C1  weight has the rank of x, groups divides O, and weight is [O, C/groups, *k].
    C2  strides and dilations have one entry an axis, pads two.
    C3  x_zero is a scalar; weight_zero is one, or [O, 1, *1].
    C4  the result is [B, O, *out].
    C5  x and weight are integers, each zero of the type of what it belongs to; the result is i32.
    """

    name = "mllm.integer_conv"

    x = operand_def(TensorType)
    weight = operand_def(TensorType)
    x_zero = opt_operand_def(TensorType)
    weight_zero = opt_operand_def(TensorType)
    strides = prop_def(DenseArrayBase)
    pads = prop_def(DenseArrayBase)
    dilations = prop_def(DenseArrayBase)
    groups = prop_def(IntegerAttr)
    result = result_def(TensorType)

    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
    traits = traits_def(Pure())
    assembly_format = (
        "$x `,` $weight (`x_zero` `(` $x_zero^ `:` type($x_zero) `)`)? "
        "(`weight_zero` `(` $weight_zero^ `:` type($weight_zero) `)`)? attr-dict `:` "
        "`(` type($x) `,` type($weight) `)` `->` type($result)"
    )

    def __init__(
        self,
        x: SSAValue,
        weight: SSAValue,
        *,
        x_zero: SSAValue | None = None,
        weight_zero: SSAValue | None = None,
        strides: Sequence[int],
        pads: Sequence[int],
        dilations: Sequence[int],
        groups: int = 1,
    ) -> None:
        window = (tuple(strides), tuple(pads), tuple(dilations))
        super().__init__(
            operands=[x, weight, x_zero, weight_zero],
            properties={
                "strides": integers(strides),
                "pads": integers(pads),
                "dilations": integers(dilations),
                "groups": integer(groups),
            },
            result_types=[tensor_of(i32, conv_dims(shape_of(x), shape_of(weight), window))],
        )

    @property
    def window(self) -> Window:
        """Strides, pads and dilations as integers."""
        return int_list(self.strides), int_list(self.pads), int_list(self.dilations)

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        x, weight, groups = shape_of(self.x), shape_of(self.weight), self.groups.value.data
        check(self, 1, filters_fit(x, weight, groups), "weight: [O, C/groups, *k]")
        check(self, 2, windows_fit(len(x) - 2, self.window), "strides, pads and dilations")
        fits = self.x_zero is None or rank_of(self.x_zero) == 0
        zero = () if self.weight_zero is None else shape_of(self.weight_zero)
        fits &= not zero or all_agree(zero, (weight[0], *[1] * (len(weight) - 1)))
        check(self, 3, fits, "x_zero must be a scalar, weight_zero one or [O, 1, *1]")
        check(self, 4, all_agree(shape_of(self.result), conv_dims(x, weight, self.window)), "dims")
        fits = are_codes(self.x, self.x_zero) and are_codes(self.weight, self.weight_zero)
        check(self, 5, fits and element_of(self.result) == i32, "integers in, i32 out")
