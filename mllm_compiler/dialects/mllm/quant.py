"""Affine quantisation in the `mllm` dialect."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, TensorType, i32
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure

from mllm_compiler.dialects.dims import tensor_of
from mllm_compiler.dialects.mllm.contract import agree, all_agree, check, given, integer
from mllm_compiler.dialects.types import (
    element_of,
    is_float,
    is_integer,
    rank_of,
    shape_of,
)


def _check_parameters(
    op: Operation, x: SSAValue, scale: SSAValue, zero_point: SSAValue, axis: IntegerAttr | None
) -> None:
    """C1: scale and zero point are scalars, or rank 1 along axis."""
    at = None if axis is None else axis.value.data
    rank = 0 if at is None else 1
    fits = rank_of(scale) == rank_of(zero_point) == rank and (at is None or at < rank_of(x))
    fits = fits and all(
        at is None or agree(shape_of(v)[0], shape_of(x)[at]) for v in (scale, zero_point)
    )
    check(op, 1, fits, "scale and zero_point must be scalars, or rank 1 along axis")


@irdl_op_definition
class QuantizeOp(IRDLOperation):
    """Real to integer: x, scale, zero_point -> clamp(round(x / scale) + zero_point).

    Rounds half to even and clamps to the range of the result's type (ONNX QuantizeLinear).

    C1  scale and zero_point are scalars, or rank 1 along axis.
    C2  x and scale are floating point; zero_point and the result have one integer type.
    C3  the result has the dims of x.
    """

    name = "mllm.quantize"

    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    zero_point = operand_def(TensorType)
    axis = opt_prop_def(IntegerAttr)
    result = result_def(TensorType)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = (
        "$x `,` $scale `,` $zero_point attr-dict `:` functional-type(operands, results)"
    )

    def __init__(
        self, x: SSAValue, scale: SSAValue, zero_point: SSAValue, *, axis: int | None = None
    ) -> None:
        super().__init__(
            operands=[x, scale, zero_point],
            properties=given(axis=None if axis is None else integer(axis)),
            result_types=[tensor_of(element_of(zero_point), shape_of(x))],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        _check_parameters(self, self.x, self.scale, self.zero_point, self.axis)
        fits = is_float(element_of(self.x)) and is_float(element_of(self.scale))
        fits &= is_integer(element_of(self.result))
        fits &= element_of(self.result) == element_of(self.zero_point)
        check(self, 2, fits, "floats in, integers of zero_point's type out")
        check(self, 3, all_agree(shape_of(self.result), shape_of(self.x)), "one shape")


@irdl_op_definition
class DequantizeOp(IRDLOperation):
    """Integer to real: x, scale, zero_point -> (x - zero_point) scale (ONNX DequantizeLinear).

    C1  scale and zero_point are scalars, or rank 1 along axis.
    C2  x and zero_point have one integer type; scale and the result have one float type.
    C3  the result has the dims of x.
    """

    name = "mllm.dequantize"

    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    zero_point = operand_def(TensorType)
    axis = opt_prop_def(IntegerAttr)
    result = result_def(TensorType)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = (
        "$x `,` $scale `,` $zero_point attr-dict `:` functional-type(operands, results)"
    )

    def __init__(
        self, x: SSAValue, scale: SSAValue, zero_point: SSAValue, *, axis: int | None = None
    ) -> None:
        super().__init__(
            operands=[x, scale, zero_point],
            properties=given(axis=None if axis is None else integer(axis)),
            result_types=[tensor_of(element_of(scale), shape_of(x))],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        _check_parameters(self, self.x, self.scale, self.zero_point, self.axis)
        fits = is_integer(element_of(self.x)) and is_float(element_of(self.scale))
        fits &= element_of(self.x) == element_of(self.zero_point)
        fits &= element_of(self.scale) == element_of(self.result)
        check(self, 2, fits, "integers of zero_point's type in, floats of scale's type out")
        check(self, 3, all_agree(shape_of(self.result), shape_of(self.x)), "one shape")


@irdl_op_definition
class RequantizeOp(IRDLOperation):
    """Accumulator to integer: x i32, multiplier, zero_point -> clamp(round(x * m) + zero_point).

    Rounds half to even, in double precision, and clamps to the range of the result's type; the
    multiplier is the quotient of the scales of x and the result.

    C1  multiplier and zero_point are scalars, or rank 1 along axis.
    C2  x is i32, the multiplier floating point; zero_point and the result have one integer type.
    C3  the result has the dims of x.
    """

    name = "mllm.requantize"

    x = operand_def(TensorType)
    multiplier = operand_def(TensorType)
    zero_point = operand_def(TensorType)
    axis = opt_prop_def(IntegerAttr)
    result = result_def(TensorType)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = (
        "$x `,` $multiplier `,` $zero_point attr-dict `:` functional-type(operands, results)"
    )

    def __init__(
        self, x: SSAValue, multiplier: SSAValue, zero_point: SSAValue, *, axis: int | None = None
    ) -> None:
        element: Attribute = element_of(zero_point)
        super().__init__(
            operands=[x, multiplier, zero_point],
            properties=given(axis=None if axis is None else integer(axis)),
            result_types=[tensor_of(element, shape_of(x))],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        _check_parameters(self, self.x, self.multiplier, self.zero_point, self.axis)
        fits = element_of(self.x) == i32 and is_float(element_of(self.multiplier))
        fits &= is_integer(element_of(self.result))
        fits &= element_of(self.result) == element_of(self.zero_point)
        check(self, 2, fits, "i32 in, integers of zero_point's type out")
        check(self, 3, all_agree(shape_of(self.result), shape_of(self.x)), "one shape")
