"""Affine quantisation of the `mllm` dialect as nodes of the standard.

Where QuantizeLinear and DequantizeLinear can say which codes share a scale (all, those of an axis,
or since opset 21 a block), they are written; else their arithmetic is.
"""

from __future__ import annotations

from typing import Final

from xdsl.dialects.builtin import f16, f32, i32
from xdsl.ir import Attribute, SSAValue

from mllm_compiler.backends.onnx.builder import Argument, Builder, Value
from mllm_compiler.backends.onnx.entry import Inputs, one, several
from mllm_compiler.backends.onnx.linear import product, reduce
from mllm_compiler.backends.onnx.types import DTYPES
from mllm_compiler.dialects.mllm import (
    DequantizeOp,
    DynamicQuantizeOp,
    IntegerConvOp,
    IntegerMatmulOp,
    QuantizedLinearOp,
    QuantizeOp,
    ReduceKind,
)
from mllm_compiler.dialects.mllm.quant import value_of
from mllm_compiler.dialects.types import bits_of, bounds_of, element_of, rank_of, shape_of, ui8

BLOCKS_SINCE: Final = 21
"""The opset since when codes have scales in blocks."""

TYPED_SINCE: Final = 21
"""The opset since when QuantizeLinear takes the type of its codes as an attribute."""


def _axis(codes: SSAValue, scale: SSAValue) -> int | None:
    """The axis of the codes along which a scale runs whole, 1 elsewhere; None where none is."""
    lead = rank_of(codes) - rank_of(scale)
    wide = [at for at, d in enumerate(shape_of(scale)) if d.as_int() != 1]
    if len(wide) != 1 or shape_of(scale)[wide[0]] != shape_of(codes)[lead + wide[0]]:
        return None
    return lead + wide[0]


def _zero(b: Builder, op: QuantizeOp | DequantizeOp, codes: Attribute) -> Argument:
    """The zero point with the dims of the scale; None where it can stay absent."""
    zero, dims = op.zero_point, shape_of(op.scale)
    if zero is None and (codes == i32 or (isinstance(op, QuantizeOp) and b.opset >= TYPED_SINCE)):
        return None
    given = b.scalar(0, codes) if zero is None else b[zero]
    if not dims or (zero is not None and shape_of(zero) == dims):
        return given
    # Narrow integers can be cast, but not repeated.
    return b.cast(b.node("Expand", b.cast(given, i32), b.dims(dims)), codes)


def _said(
    operator: str, op: QuantizeOp | DequantizeOp, b: Builder, scale: Value, zero: Argument
) -> Value | None:
    """The operator of the standard; None where it cannot say which codes share a scale.

    Raises:
        CompileError: MLC-U014, the opset has no blocks.
    """
    x, more = b[op.x], dict[str, int]()
    if zero is None and isinstance(op, QuantizeOp):
        more["output_dtype"] = int(DTYPES[element_of(op.result)])
    if op.axis is not None and op.block_size is not None:
        if b.opset < BLOCKS_SINCE:
            raise b.missing(f"'{operator}' in blocks")
        size = op.block_size.value.data
        return b.node(operator, x, scale, zero, axis=op.axis.value.data, block_size=size, **more)
    if not rank_of(op.scale):
        whole = op.zero_point is None or not rank_of(op.zero_point)
        return b.node(operator, x, scale, zero, **more) if whole else None
    axis = _axis(op.x, op.scale)
    if axis is None:
        return None
    flat = [p and b.node("Reshape", p, b.integers(-1)) for p in (scale, zero)]
    return b.node(operator, x, *flat, axis=axis, **more)


def _quantize(op: QuantizeOp, b: Builder, inputs: Inputs) -> Value:
    element = element_of(op.result)
    zero = _zero(b, op, element)
    made = _said("QuantizeLinear", op, b, inputs[1], zero)
    return codes_of(b, inputs[0], inputs[1], zero, element) if made is None else made


def codes_of(b: Builder, x: Value, scale: Value, zero: Argument, element: Attribute) -> Value:
    """The arithmetic of QuantizeLinear, for a scale that broadcasts."""
    whole = b.node("Round", b.node("Div", x, scale))
    whole = whole if zero is None else b.node("Add", whole, b.cast(zero, f32))
    limits = (b.scalar(limit, f32) for limit in bounds_of(element))
    return b.cast(b.node("Clip", whole, *limits), element)


def _dequantize(op: DequantizeOp, b: Builder, inputs: Inputs) -> Value:
    before, after = element_of(op.scale), element_of(op.result)
    scale = b.cast(inputs[1], after) if before == f16 and after == f32 else inputs[1]
    zero = _zero(b, op, element_of(op.x))
    made = _said("DequantizeLinear", op, b, scale, zero)
    if made is None:
        made = b.node("Mul", b.cast(_less(b, op.x, op.zero_point), before), inputs[1])
    return made if after in (before, f32) else b.cast(made, after)


def _dynamic_quantize(op: DynamicQuantizeOp, b: Builder, inputs: Inputs) -> list[Value]:
    x, element, real = inputs[0], element_of(op.codes), element_of(op.x)
    if op.axis is None and op.zero_point is not None and (element, real) == (ui8, f32):
        return list(b.several("DynamicQuantizeLinear", 3, x))
    if op.axis is None:
        return _from_data(op, b, x, tuple(range(rank_of(op.x))), keep=False)
    axis = op.axis.value.data
    if op.block_size is None:
        return _from_data(op, b, x, (axis,), keep=True)
    dims, size = shape_of(op.x), op.block_size.value.data
    if (dims[axis] % size).as_int() != 0:
        raise b.missing("quantisation of blocks with scales from the data where one is cut short")
    blocks = b.reshape(x, dims, (*dims[:axis], dims[axis] // size, size, *dims[axis + 1 :]))
    codes, *sides = _from_data(op, b, blocks, (axis + 1,), keep=True)
    flat = [b.node("Squeeze", side, b.integers(axis + 1)) for side in sides]
    return [b.node("Reshape", codes, b.dims(dims)), *flat]


def _from_data(
    op: DynamicQuantizeOp, b: Builder, x: Value, axes: tuple[int, ...], *, keep: bool
) -> list[Value]:
    """Codes, scale and zero point where all elements along axes share a scale."""
    element, real = element_of(op.codes), element_of(op.x)
    none = b.scalar(0, real)
    top = b.node("Max", reduce(b, ReduceKind.MAX, x, axes, keepdims=keep), none)
    bottom = b.node("Min", reduce(b, ReduceKind.MIN, x, axes, keepdims=keep), none)
    lowest, largest = bounds_of(element)
    if op.zero_point is None:
        width, steps = b.node("Max", top, b.node("Neg", bottom)), largest
    else:
        width, steps = b.node("Sub", top, bottom), largest - lowest
    scale = b.node("Div", width, b.scalar(steps, real))
    scale = b.node("Where", b.node("Equal", scale, none), b.scalar(1, real), scale)
    if op.zero_point is None:
        return [codes_of(b, x, scale, None, element), scale]
    offset = b.node("Sub", b.scalar(lowest, real), b.node("Div", bottom, scale))
    limits = (b.scalar(limit, real) for limit in (lowest, largest))
    zero = b.cast(b.node("Round", b.node("Clip", offset, *limits)), element)
    return [codes_of(b, x, scale, zero, element), scale, zero]


def _less(b: Builder, codes: SSAValue, zero: SSAValue | None) -> Value:
    wide = b.cast(b[codes], i32)
    return wide if zero is None else b.node("Sub", wide, b.cast(b[zero], i32))


def _numbers(
    b: Builder,
    codes: SSAValue,
    scale: SSAValue,
    zero: SSAValue | None,
    size: int | None,
    element: Attribute,
) -> Value:
    """What codes mean, as `mllm.dequantize` writes it."""
    axis = None if size is None else rank_of(codes) - 1
    op = DequantizeOp(codes, scale, zero, axis=axis, block_size=size, element=element)
    made = _dequantize(op, b, [b[v] for v in op.operands])
    op.erase()
    return made


def _quantized_linear(op: QuantizedLinearOp, b: Builder, inputs: Inputs) -> Value:
    """Two DequantizeLinear and a product, which is what such a model says elsewhere."""
    size, element = value_of(op.block_size), element_of(op.result)
    blocks = [p is not None and not _is_one(p) for p in (op.x_scale, op.x_zero)]
    x = _numbers(b, op.x, op.x_scale, op.x_zero, size if any(blocks) else None, element)
    weight = _numbers(b, op.weight, op.weight_scale, op.weight_zero, size, element)
    return product(b, x, weight, None if op.bias is None else b[op.bias])


def _is_one(parameter: SSAValue) -> bool:
    """Whether all codes of a row share a scale or zero point."""
    return not rank_of(parameter) or shape_of(parameter)[-1].as_int() == 1


def _integer_matmul(op: IntegerMatmulOp, b: Builder, inputs: Inputs) -> Value:
    zeros = (op.a_zero, op.b_zero)
    bytes_ = {bits_of(element_of(v)) for v in (op.a, op.b)} == {8}
    if bytes_ and not any(z is not None and rank_of(z) for z in zeros):
        points = [
            b.scalar(0, element_of(v)) if z is None else b[z]
            for v, z in zip((op.a, op.b), zeros, strict=True)
        ]
        return b.node("MatMulInteger", b[op.a], b[op.b], *points)
    return b.node("MatMul", _less(b, op.a, op.a_zero), _less(b, op.b, op.b_zero))


def _integer_conv(op: IntegerConvOp, b: Builder, inputs: Inputs) -> Value:
    x_zero = b.scalar(0, element_of(op.x)) if op.x_zero is None else b[op.x_zero]
    zero = None if op.weight_zero is None else b[op.weight_zero]
    if zero is not None and op.weight_zero is not None and rank_of(op.weight_zero):
        zero = b.node("Reshape", zero, b.integers(-1))
    strides, pads, dilations = op.window
    return b.node(
        "ConvInteger",
        *(b[op.x], b[op.weight], x_zero, zero),
        strides=strides,
        pads=pads,
        dilations=dilations,
        group=op.groups.value.data,
    )


EXPORTERS = dict(
    [
        one(QuantizeOp, _quantize),
        one(DequantizeOp, _dequantize),
        several(DynamicQuantizeOp, _dynamic_quantize),
        one(QuantizedLinearOp, _quantized_linear),
        one(IntegerMatmulOp, _integer_matmul),
        one(IntegerConvOp, _integer_conv),
    ]
)
"""Op class to exporter."""
