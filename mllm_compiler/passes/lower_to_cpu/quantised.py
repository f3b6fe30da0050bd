"""Ops on codes as cpu ops; weights of codes stay codes, in panels of 16 rows.

    %w = mllm.dequantize %codes, %scale {axis = 1, block_size = 32}
    %y = mllm.linear %x, %w
->
    %y = cpu.f32_dequantized_linear %x, %codes16, %scale16, none, none {code = "ui4", ...}

What `mllm.dequantize` makes is also lowered by itself; where only such products and look-ups read
it, it is dead.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, TensorType, f32, i8
from xdsl.ir import SSAValue

from mllm_compiler.dialects import cpu, mllm
from mllm_compiler.dialects.calls import Value
from mllm_compiler.dialects.cpu.weights import PLAIN
from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.dialects.mllm.quant import value_of
from mllm_compiler.dialects.types import bits_of, element_of, is_signed, shape_of, ui8
from mllm_compiler.passes.lower_to_cpu.builder import Builder, Coded


def weight(op: mllm.WeightOp, b: Builder) -> SSAValue:
    """A weight as the store has it; codes of less than a byte are unpacked where they are read."""
    name = op.weight_name.data if op.weight_name else op.value.digest.data[7:19]
    made = cpu.WeightOp(op.value, PLAIN, name)
    b.insert(made)
    if bits_of(op.value.element) >= 8:
        return made.result
    element = i8 if is_signed(op.value.element) else ui8
    whole = TensorType(element, op.value.dims)
    return b.call(cpu.UnpackOp, [made.result], whole, code=str(op.value.element))


def constant(op: mllm.ConstantOp, b: Builder) -> SSAValue:
    """A constant; elements of less than a byte, which it holds in one each, are bytes."""
    value = op.value
    element = value.get_element_type()
    if element != f32 and bits_of(element) < 8:
        kind = TensorType(i8 if is_signed(element) else ui8, value.get_shape())
        value = DenseIntOrFPElementsAttr(kind, value.data)
    made = cpu.ConstantOp(value, PLAIN)
    b.insert(made)
    return made.result


@dataclass(frozen=True)
class CodedCall:
    """A weight of codes as kernels read it: codes, scale and zero point, and their properties."""

    operands: list[SSAValue | None]
    properties: dict[str, Value]

    @staticmethod
    def of(b: Builder, matrix: Coded) -> CodedCall:
        """The quads of a weight and the panels of its sides; one that serves all is a number."""
        n, k = b.fixed(matrix.codes)
        blocks = -(-k // matrix.block_size) if matrix.block_size else 1
        dims = (Dim.const(n), Dim.const(blocks))
        sides = [None if v is None else _side(b, v, dims) for v in (matrix.scale, matrix.zero)]
        panels = [v if v is None or not shape_of(v) else b.panels(v) for v in sides]
        return CodedCall(
            [b.quads(matrix.codes), *panels],
            {
                "n": n,
                "code": _code(matrix.codes),
                "zero_code": _code(sides[1] or matrix.codes),
                "block_size": matrix.block_size,
            },
        )


def _side(b: Builder, value: SSAValue, dims: tuple[Dim, ...]) -> SSAValue:
    """A scale or zero point as a scalar or of `dims`."""
    return b.alias(value, ()) if _serves_all(value) else b.repeat(value, dims)


def _serves_all(value: SSAValue) -> bool:
    return all(d.as_int() == 1 for d in shape_of(value))


def _code(value: SSAValue) -> str:
    """The format of codes, in panels or as a scalar."""
    owner = value.owner
    return owner.code.data if isinstance(owner, cpu.UnpackOp) else str(element_of(value))


def quantize(op: mllm.QuantizeOp, b: Builder) -> SSAValue:
    """Codes of reals with given scales."""
    arguments = [_single(b, op.x), _single(b, op.scale), op.zero_point]
    return b.call(cpu.QuantizeOp, arguments, op.result.type, **_blocks(op))


def dequantize(op: mllm.DequantizeOp, b: Builder) -> SSAValue:
    """Reals of codes; a matrix that kernels can read as codes is remembered."""
    if (found := _looked_up(op)) is not None:
        return rows_of_codes(b, *found, op.result)
    arguments = [op.x, _single(b, op.scale), op.zero_point]
    reals = tensor_of(f32, shape_of(op.result))
    made = b.call(cpu.DequantizeOp, arguments, reals, **_blocks(op))
    if element_of(op.result) != f32:
        return b.call(cpu.CastOp, [made], op.result.type)
    if _is_matrix(op):
        b.coded[made] = Coded(op.x, op.scale, op.zero_point, value_of(op.block_size) or 0)
    return made


def rows_of_codes(b: Builder, ids: SSAValue, table: Coded, result: SSAValue) -> SSAValue:
    """Rows, as reals, of a table of codes."""
    call = CodedCall.of(b, table)
    arguments = [ids, *call.operands]
    return b.call(cpu.F32DequantizedEmbeddingOp, arguments, result.type, **call.properties)


def _looked_up(op: mllm.DequantizeOp) -> tuple[SSAValue, Coded] | None:
    """Ids, and the table whose codes, scales and zero points they all look up.

    Read in panels, it is stored once where it is also the matrix of a product.
    """
    first, sides = op.x.owner, [v for v in (op.x, op.scale, op.zero_point) if v is not None]
    if not isinstance(first, cpu.GatherOp) or element_of(op.result) != f32:
        return None
    found = [_table(v, first.indices) for v in sides]
    tables = [v for v in found if v is not None]
    size, last = value_of(op.block_size), len(shape_of(op.x)) - 1
    in_rows = size is None and all(shape_of(v)[-1].as_int() == 1 for v in tables[1:])
    in_blocks = size is not None and value_of(op.axis) == last
    if len(tables) != len(sides) or not (in_rows or in_blocks):
        return None
    return first.indices, Coded(tables[0], tables[1], [*tables, None][2], size or 0)


def _table(rows: SSAValue, ids: SSAValue) -> SSAValue | None:
    """The stored matrix whose rows are looked up."""
    gather = rows.owner
    if not isinstance(gather, cpu.GatherOp) or gather.axis.value.data != 0:
        return None
    whole = gather.indices is ids and _is_stored(gather.x) and len(shape_of(gather.x)) == 2
    return gather.x if whole else None


def _is_stored(value: SSAValue) -> bool:
    return isinstance(value.owner, cpu.WeightOp | cpu.ConstantOp | cpu.UnpackOp)


def _is_matrix(op: mllm.DequantizeOp) -> bool:
    """Whether codes are stored, and scaled by rows or by blocks along the rows."""
    if not _is_stored(op.x) or len(shape_of(op.x)) != 2 or bits_of(element_of(op.x)) != 8:
        return False
    if op.axis is not None:
        return op.axis.value.data == 1
    sides = [v for v in (op.scale, op.zero_point) if v is not None]
    return all(_serves_all(v) or shape_of(v)[-1].as_int() == 1 for v in sides)


def _blocks(op: mllm.QuantizeOp | mllm.DequantizeOp | mllm.DynamicQuantizeOp) -> dict[str, Value]:
    axis = value_of(op.axis)
    return {"axis": -1 if axis is None else axis, "block_size": value_of(op.block_size) or 0}


def _single(b: Builder, value: SSAValue) -> SSAValue:
    """Half floats in single precision."""
    if element_of(value) == f32:
        return value
    return b.call(cpu.CastOp, [value], tensor_of(f32, shape_of(value)))


def dynamic_quantize(op: mllm.DynamicQuantizeOp, b: Builder) -> list[SSAValue]:
    """Codes, scale and zero point."""
    made = cpu.DynamicQuantizeOp.call([op.x], [r.type for r in op.results], **_blocks(op))
    b.insert(made)
    return [*made.results]


def quantized_linear(op: mllm.QuantizedLinearOp, b: Builder) -> SSAValue:
    """A product of codes with a weight of codes."""
    size = value_of(op.block_size) or 0
    call = CodedCall.of(b, Coded(op.weight, op.weight_scale, op.weight_zero, size))
    x_scale, x_zero = (None if v is None else _of_rows(b, v, op.x) for v in (op.x_scale, op.x_zero))
    arguments = [op.x, x_scale, *call.operands, x_zero, op.bias]
    return b.call(cpu.QuantizedLinearOp, arguments, op.result.type, **call.properties)


def _of_rows(b: Builder, value: SSAValue, x: SSAValue) -> SSAValue:
    """A scale or zero point of rows as a scalar or with the leading dims of x."""
    if _serves_all(value):
        return b.alias(value, ())
    return b.repeat(value, (*shape_of(x)[:-1], shape_of(value)[-1]))


def integer_matmul(op: mllm.IntegerMatmulOp, b: Builder) -> SSAValue:
    """An exact product; zero points are scalars or have the dims of rows and columns."""
    a_dims, b_dims = shape_of(op.a), shape_of(op.b)
    a_zero = None if op.a_zero is None else _side(b, op.a_zero, (*a_dims[:-1], Dim.const(1)))
    columns = (*b_dims[:-2], Dim.const(1), b_dims[-1])
    b_zero = None if op.b_zero is None else _side(b, op.b_zero, columns)
    return b.call(cpu.IntegerMatmulOp, [op.a, op.b, a_zero, b_zero], op.result.type)


def integer_conv(op: mllm.IntegerConvOp, b: Builder) -> SSAValue:
    """An exact convolution."""
    strides, pads, dilations = op.window
    zero, filters = op.weight_zero, shape_of(op.weight)[:1]
    flat = None if zero is None else b.alias(zero, () if _serves_all(zero) else filters)
    return b.call(
        cpu.IntegerConvOp,
        [op.x, op.weight, op.x_zero, flat],
        op.result.type,
        strides=strides,
        pads=pads,
        dilations=dilations,
        groups=op.groups.value.data,
    )
