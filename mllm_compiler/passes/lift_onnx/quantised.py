"""Quantised operators of ONNX as `mllm` ops.

A scale of ONNX is a scalar, [N] along an axis, or one for each block; here it broadcasts to what it
scales. A product of codes becomes the exact integer product, a scale for its sums, and, where the
result is quantised, `mllm.quantize`: what a model with QuantizeLinear and DequantizeLinear says.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import f32
from xdsl.ir import Attribute, SSAValue

from mllm_compiler.dialects.mllm import (
    BinaryKind,
    CastOp,
    DequantizeOp,
    DynamicQuantizeOp,
    IntegerConvOp,
    IntegerMatmulOp,
    QuantizeOp,
)
from mllm_compiler.dialects.mllm.contract import normal_axis
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.dialects.types import element_of, is_float, rank_of, shape_of, ui8
from mllm_compiler.passes.lift_onnx.emit import Converter, Emit
from mllm_compiler.passes.lift_onnx.linear import integer_attribute
from mllm_compiler.passes.lift_onnx.vision import window_of


def along(emit: Emit, parameter: SSAValue | None, axis: int, rank: int) -> SSAValue | None:
    """A scale or zero point of one axis, so that it broadcasts to a tensor of `rank`.

    One of a single element serves the whole tensor and becomes a scalar.
    """
    if parameter is None or rank_of(parameter) != 1:
        return parameter
    count = shape_of(parameter)[0]
    if count.as_int() == 1:
        return emit.reshape(parameter, [])
    return emit.reshape(parameter, [count if i == axis else 1 for i in range(rank)])


def _parameters(op: OnnxOp, emit: Emit) -> tuple[SSAValue, SSAValue | None, int, int] | None:
    """Scale, zero point, axis and block size (0 where there are no blocks)."""
    rank = rank_of(op.operands[0])
    size = integer_attribute(op, "block_size") if "block_size" in op.properties else 0
    axis = normal_axis(integer_attribute(op, "axis", 1), rank)
    scale = along(emit, op.input(1), axis, rank)
    assert scale is not None
    if not size and rank_of(scale) not in (0, rank):
        return None
    return scale, along(emit, op.input(2), axis, rank), axis, size


def _quantize_linear(op: OnnxOp, emit: Emit) -> SSAValue | None:
    found, x = _parameters(op, emit), op.operands[0]
    if found is None:
        return None
    scale, zero, axis, size = found
    x = x if is_float(element_of(x)) else emit(CastOp(x, f32))
    blocks = {"axis": axis, "block_size": size} if size else {}
    return emit(QuantizeOp(x, scale, zero, element_of(op.results[0]), **blocks))


def _dequantize_linear(op: OnnxOp, emit: Emit) -> SSAValue | None:
    found = _parameters(op, emit)
    if found is None:
        return None
    scale, zero, axis, size = found
    blocks = {"axis": axis, "block_size": size} if size else {}
    element = element_of(op.results[0])
    return emit(DequantizeOp(op.operands[0], scale, zero, element=element, **blocks))


def _dynamic_quantize_linear(op: OnnxOp, emit: Emit) -> Sequence[SSAValue]:
    made = DynamicQuantizeOp(op.operands[0], ui8, symmetric=False)
    emit(made)
    return made.results


def product(
    emit: Emit,
    a: SSAValue,
    b: SSAValue,
    a_zero: SSAValue | None,
    b_zero: SSAValue | None,
) -> SSAValue:
    """The integer product of matrices, with zero points as MatMulInteger has them."""
    if a_zero is not None and rank_of(a_zero) == 1:
        count = shape_of(a_zero)[0]
        a_zero = emit.reshape(a_zero, [] if count.as_int() == 1 else [count, 1])
    if b_zero is not None and rank_of(b_zero) == 1 and shape_of(b_zero)[0].as_int() == 1:
        b_zero = emit.reshape(b_zero, [])
    return emit(IntegerMatmulOp(a, b, a_zero=a_zero, b_zero=b_zero))


def _matmul_integer(op: OnnxOp, emit: Emit) -> SSAValue | None:
    a, b = op.operands[:2]
    if min(rank_of(a), rank_of(b)) < 2:
        return None
    return product(emit, a, b, op.input(2), op.input(3))


def scalar(emit: Emit, value: SSAValue) -> SSAValue:
    """A scale or zero point; one of a single element as a scalar."""
    return (
        emit.reshape(value, [])
        if rank_of(value) == 1 and shape_of(value)[0].as_int() == 1
        else value
    )


def product_scale(emit: Emit, a_scale: SSAValue, b_scale: SSAValue) -> SSAValue:
    """The f32 scale of the sums of a product: one for rows of a, columns of b, or both."""
    a_scale, b_scale = (_single(emit, scalar(emit, s)) for s in (a_scale, b_scale))
    if rank_of(a_scale) == 1:
        a_scale = emit.reshape(a_scale, [*shape_of(a_scale), 1])
    return emit.binary(BinaryKind.MUL, a_scale, b_scale)


def _single(emit: Emit, value: SSAValue) -> SSAValue:
    return value if element_of(value) == f32 else emit(CastOp(value, f32))


def requantised(
    emit: Emit, real: SSAValue, scale: SSAValue, zero: SSAValue | None, element: Attribute
) -> SSAValue:
    """Codes of real numbers, with one scale for all."""
    zero = None if zero is None else scalar(emit, zero)
    return emit(QuantizeOp(real, scalar(emit, scale), zero, element))


def _qlinear_matmul(op: OnnxOp, emit: Emit) -> SSAValue | None:
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = op.operands
    if min(rank_of(a), rank_of(b)) < 2 or rank_of(scale) > 1 or rank_of(zero) > 1:
        return None
    sums = product(emit, a, b, a_zero, b_zero)
    real = emit(DequantizeOp(sums, product_scale(emit, a_scale, b_scale)))
    return requantised(emit, real, scale, zero, element_of(zero))


def _convolution(
    op: OnnxOp,
    emit: Emit,
    weight: SSAValue,
    x_zero: SSAValue | None,
    weight_zero: SSAValue | None,
) -> SSAValue | None:
    window = window_of(op, weight)
    if window is None:
        return None
    strides, pads, dilations = window
    return emit(
        IntegerConvOp(
            op.operands[0],
            weight,
            x_zero=None if x_zero is None else scalar(emit, x_zero),
            weight_zero=along(emit, weight_zero, 0, rank_of(weight)),
            strides=strides,
            pads=pads,
            dilations=dilations,
            groups=integer_attribute(op, "group", 1),
        )
    )


def _conv_integer(op: OnnxOp, emit: Emit) -> SSAValue | None:
    return _convolution(op, emit, op.operands[1], op.input(2), op.input(3))


def _qlinear_conv(op: OnnxOp, emit: Emit) -> SSAValue | None:
    _, x_scale, x_zero, weight, weight_scale, weight_zero, scale, zero = op.operands[:8]
    sums = _convolution(op, emit, weight, x_zero, weight_zero)
    if sums is None:
        return None
    column = [1] * (rank_of(weight) - 2)
    if (bias := op.input(8)) is not None:
        sums = emit.binary(BinaryKind.ADD, sums, emit.reshape(bias, [*shape_of(bias), *column]))
    weight_scale = scalar(emit, weight_scale)
    if rank_of(weight_scale) == 1:
        weight_scale = emit.reshape(weight_scale, [*shape_of(weight_scale), *column])
    real = emit(DequantizeOp(sums, product_scale(emit, x_scale, weight_scale)))
    return requantised(emit, real, scale, zero, element_of(zero))


CONVERTERS: dict[str, Converter] = {
    "QuantizeLinear": _quantize_linear,
    "DequantizeLinear": _dequantize_linear,
    "DynamicQuantizeLinear": _dynamic_quantize_linear,
    "MatMulInteger": _matmul_integer,
    "QLinearMatMul": _qlinear_matmul,
    "ConvInteger": _conv_integer,
    "QLinearConv": _qlinear_conv,
    "microsoft.QuantizeLinear": _quantize_linear,
    "microsoft.DequantizeLinear": _dequantize_linear,
}
"""Operator name to converter."""
