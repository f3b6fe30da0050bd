"""Affine quantisation in the `mllm` dialect: codes are integers, scales and zero points operands.

A quantised tensor is a plain tensor of integers (i4, ui4, i8, ui8, i16 ...), and what its codes
mean stands on the ops that make and read it. A quantised element type, as MLIR's `quant` dialect
has it, could not say that a scale is computed at run time (one for each token), would carry a
matrix of scales in the type of a weight in blocks, and every pass would compare such types. With
operands, a weight in blocks is two handles, `mllm.linear` reads `mllm.dequantize` of a weight as it
reads any matrix, the module goes back to ONNX op by op, and the encoding of a tensor that a vendor
wants is one look at its maker.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IntegerAttr, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    opt_result_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure

from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.dialects.mllm.contract import agree, all_agree, check, given, integer
from mllm_compiler.dialects.types import (
    element_of,
    is_float,
    is_integer,
    is_signed,
    rank_of,
    shape_of,
)


def parameter_dims(dims: Sequence[Dim], axis: int, block_size: int) -> tuple[Dim, ...]:
    """The dims of the scales of a tensor in blocks of `block_size` along an axis."""
    count = (dims[axis] + (block_size - 1)) // block_size
    return (*dims[:axis], count, *dims[axis + 1 :])


def fits_codes(
    x: SSAValue, parameters: Sequence[SSAValue | None], axis: int | None, block_size: int | None
) -> bool:
    """Whether scale and zero point broadcast to the codes, or to their blocks."""
    dims = shape_of(x)
    if (axis is None) != (block_size is None):
        return False
    if axis is not None and block_size is not None:
        if not 0 <= axis < len(dims) or block_size < 1:
            return False
        dims = parameter_dims(dims, axis, block_size)
    shapes = [shape_of(p) for p in parameters if p is not None]
    ranks = (0, len(dims)) if axis is not None else range(len(dims) + 1)
    return all(len(s) in ranks and _broadcasts(s, dims) for s in shapes)


def _broadcasts(parameter: Sequence[Dim], dims: Sequence[Dim]) -> bool:
    """Whether dims, aligned at the end, are those of a tensor or 1."""
    pairs = zip(reversed(parameter), reversed(dims), strict=False)
    return all(p.as_int() == 1 or agree(p, d) for p, d in pairs)


def are_codes(codes: SSAValue, zero_point: SSAValue | None) -> bool:
    """Whether a value is of integers, and its zero point of the same ones."""
    alike = zero_point is None or element_of(zero_point) == element_of(codes)
    return alike and is_integer(element_of(codes))


def value_of(attribute: IntegerAttr | None) -> int | None:
    """The integer of an optional property."""
    return None if attribute is None else attribute.value.data


def _blocks(axis: int | None, block_size: int | None) -> dict[str, Attribute]:
    return given(
        axis=None if axis is None else integer(axis),
        block_size=None if block_size is None else integer(block_size),
    )


def _check_parameters(op: QuantizeOp | DequantizeOp) -> None:
    """C1 of both."""
    parameters = (op.scale, op.zero_point)
    fits = fits_codes(op.x, parameters, value_of(op.axis), value_of(op.block_size))
    check(op, 1, fits, "scale and zero_point must broadcast to x, or to its blocks along axis")


@irdl_op_definition
class QuantizeOp(IRDLOperation):
    """Real to integer: x, scale, zero_point? -> clamp(round(x / scale) + zero_point).

    The quotient has single precision, or double where x has; it is rounded half to even, and the
    sum is clamped to the range of the result's type (ONNX QuantizeLinear). Without zero_point it is
    0. Shapes say which codes share a scale: all (a scalar), those of a channel ([N, 1] for x
    [N, K]), those of a token ([B, T, 1]); with axis and block_size, each block of so many along
    axis, the last of which may be cut short.

    C1  scale and zero_point broadcast to x as in NumPy; with block_size they are scalars, or have
        the rank of x and broadcast to it and to the number of blocks along axis.
    C2  x and scale are floating point; zero_point and the result have one integer type.
    C3  the result has the dims of x.
    """

    name = "mllm.quantize"

    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    zero_point = opt_operand_def(TensorType)
    axis = opt_prop_def(IntegerAttr)
    block_size = opt_prop_def(IntegerAttr)
    result = result_def(TensorType)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = (
        "$x `,` $scale (`,` $zero_point^)? attr-dict `:` functional-type(operands, results)"
    )

    def __init__(
        self,
        x: SSAValue,
        scale: SSAValue,
        zero_point: SSAValue | None,
        element: Attribute,
        *,
        axis: int | None = None,
        block_size: int | None = None,
    ) -> None:
        super().__init__(
            operands=[x, scale, zero_point],
            properties=_blocks(axis, block_size),
            result_types=[tensor_of(element, shape_of(x))],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        _check_parameters(self)
        fits = is_float(element_of(self.x)) and is_float(element_of(self.scale))
        fits &= are_codes(self.result, self.zero_point)
        check(self, 2, fits, "floats in, integers of zero_point's type out")
        check(self, 3, all_agree(shape_of(self.result), shape_of(self.x)), "one shape")


@irdl_op_definition
class DequantizeOp(IRDLOperation):
    """Integer to real: x, scale, zero_point? -> (x - zero_point) scale (ONNX DequantizeLinear).

    The product has single precision, or double where scale or the result has, and is rounded to
    the type of the result. Scales belong to codes as in `mllm.quantize`.

    C1  scale and zero_point broadcast to x as in NumPy; with block_size they are scalars, or have
        the rank of x and broadcast to it and to the number of blocks along axis.
    C2  x and zero_point have one integer type; scale and the result are floating point.
    C3  the result has the dims of x.
    """

    name = "mllm.dequantize"

    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    zero_point = opt_operand_def(TensorType)
    axis = opt_prop_def(IntegerAttr)
    block_size = opt_prop_def(IntegerAttr)
    result = result_def(TensorType)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = (
        "$x `,` $scale (`,` $zero_point^)? attr-dict `:` functional-type(operands, results)"
    )

    def __init__(
        self,
        x: SSAValue,
        scale: SSAValue,
        zero_point: SSAValue | None = None,
        *,
        axis: int | None = None,
        block_size: int | None = None,
        element: Attribute | None = None,
    ) -> None:
        element = element_of(scale) if element is None else element
        super().__init__(
            operands=[x, scale, zero_point],
            properties=_blocks(axis, block_size),
            result_types=[tensor_of(element, shape_of(x))],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        _check_parameters(self)
        fits = are_codes(self.x, self.zero_point)
        fits &= is_float(element_of(self.scale)) and is_float(element_of(self.result))
        check(self, 2, fits, "integers of zero_point's type in, floats out")
        check(self, 3, all_agree(shape_of(self.result), shape_of(self.x)), "one shape")


@irdl_op_definition
class DynamicQuantizeOp(IRDLOperation):
    """Real to integer with scales from the data: x -> codes, scale, zero_point?.

    One scale serves all of x, or, with axis, each line along it (a token, for the last axis), or,
    with block_size too, each block of so many along it, the last of which may be cut short. With
    a zero point, codes reach over [min(x, 0), max(x, 0)]: scale = (max - min) / (largest - lowest
    code), zero_point = clamp(round(lowest - min / scale)), and codes as in `mllm.quantize` (ONNX
    DynamicQuantizeLinear). Without, they are symmetric: scale = max|x| / largest code. The scale of
    zeros is 1.

    C1  axis is one of x; block_size is 1 or more, and stands with an axis only.
    C2  x and scale have one floating-point type; codes and zero_point one integer type, signed
        where there is no zero_point.
    C3  codes have the dims of x; scale and zero_point are scalars, or x with 1, or the number of
        blocks, along axis.
    """

    name = "mllm.dynamic_quantize"

    x = operand_def(TensorType)
    axis = opt_prop_def(IntegerAttr)
    block_size = opt_prop_def(IntegerAttr)
    codes = result_def(TensorType)
    scale = result_def(TensorType)
    zero_point = opt_result_def(TensorType)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "$x attr-dict `:` functional-type(operands, results)"

    def __init__(
        self,
        x: SSAValue,
        element: Attribute,
        *,
        symmetric: bool,
        axis: int | None = None,
        block_size: int | None = None,
    ) -> None:
        shared = self._shared(x, axis, block_size)
        zero_point = [] if symmetric else [tensor_of(element, shared)]
        super().__init__(
            operands=[x],
            properties=_blocks(axis, block_size),
            result_types=[
                tensor_of(element, shape_of(x)),
                tensor_of(element_of(x), shared),
                zero_point,
            ],
        )

    @staticmethod
    def _shared(x: SSAValue, axis: int | None, block_size: int | None) -> tuple[Dim, ...]:
        if axis is None:
            return ()
        if block_size is not None:
            return parameter_dims(shape_of(x), axis, block_size)
        return tuple(Dim.const(1) if i == axis else d for i, d in enumerate(shape_of(x)))

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        axis, size = value_of(self.axis), value_of(self.block_size)
        check(self, 1, axis is None or 0 <= axis < rank_of(self.x), f"axis {axis}")
        fits = size is None or (axis is not None and size >= 1)
        check(self, 1, fits, f"block_size {size} where axis is {axis}")
        codes = element_of(self.codes)
        fits = is_float(element_of(self.x)) and element_of(self.scale) == element_of(self.x)
        fits &= are_codes(self.codes, self.zero_point)
        fits &= self.zero_point is not None or is_signed(codes)
        check(self, 2, fits, "floats in, integers out, signed where there is no zero_point")
        shared = self._shared(self.x, axis, size)
        fits = all_agree(shape_of(self.codes), shape_of(self.x))
        fits &= all(all_agree(shape_of(v), shared) for v in self.results[1:])
        check(self, 3, fits, "the dims of codes, scale or zero_point")
