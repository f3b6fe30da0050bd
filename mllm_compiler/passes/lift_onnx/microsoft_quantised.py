"""ONNX Runtime's quantised operators (`com.microsoft`) as `mllm` ops."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from xdsl.dialects.builtin import IntegerType, Signedness
from xdsl.ir import SSAValue

from mllm_compiler.dialects.mllm import (
    BinaryKind,
    BlobAttr,
    ConcatOp,
    DequantizeOp,
    DynamicQuantizeOp,
    LinearOp,
    SoftmaxOp,
    TransposeOp,
    UnaryKind,
    UnaryOp,
    WeightOp,
)
from mllm_compiler.dialects.mllm.contract import normal_axis
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.dialects.types import dtype_of, element_of, rank_of, ui8
from mllm_compiler.passes.lift_onnx.elementwise import leaky_relu
from mllm_compiler.passes.lift_onnx.emit import Converter, Emit
from mllm_compiler.passes.lift_onnx.linear import integer_attribute, number_attribute
from mllm_compiler.passes.lift_onnx.quantised import product, product_scale, requantised, scalar
from mllm_compiler.weights import unpacked


def _matmul_n_bits(op: OnnxOp, emit: Emit) -> SSAValue | None:
    """A linear map whose weight is codes in blocks; the codes keep their bytes."""
    a, packed, scales = op.operands[:3]
    zero, order, bias = (op.input(i) for i in (3, 4, 5))
    k, n, bits, block = (integer_attribute(op, s) for s in ("K", "N", "bits", "block_size"))
    if order is not None or bits not in (2, 4, 8) or (zero and element_of(zero) != ui8):
        return None
    blocks = -(-k // block)
    codes = _codes(emit, packed, bits, (n, blocks * block), k)
    if zero is None:
        element = IntegerType(bits, Signedness.UNSIGNED)
        point: SSAValue | None = emit.scalar(1 << (bits - 1), element)
    else:
        point = _codes(emit, zero, bits, (n, blocks), blocks)
    if codes is None or point is None:
        return None
    scale = emit.reshape(scales, [n, blocks])
    made = DequantizeOp(codes, scale, point, axis=1, block_size=block, element=element_of(a))
    return emit(LinearOp(a, emit(made), bias))


def _codes(
    emit: Emit, packed: SSAValue, bits: int, shape: tuple[int, int], columns: int
) -> SSAValue | None:
    """The codes [N, columns] of bytes whose rows are padded; None where they are computed.

    A matrix without padding is a handle of the same bytes: ONNX packs narrow integers alike.
    """
    element = IntegerType(bits, Signedness.UNSIGNED)
    weight = packed.owner
    whole = columns == shape[1] and columns * bits % 8 == 0
    if whole and isinstance(weight, WeightOp):
        blob = BlobAttr.of(weight.value.digest.data, element, (shape[0], columns))
        return emit(WeightOp(blob, weight.weight_name.data if weight.weight_name else None))
    raw = emit.bytes_of(packed)
    if raw is None:
        return None
    rows = raw.reshape(shape[0], -1)
    places = rows.shape[1] * 8 // bits
    wide = unpacked(rows.reshape(-1), dtype_of(element), rows.shape[0] * places)
    return emit.stored(np.ascontiguousarray(wide.reshape(-1, places)[:, :columns]))


def _dynamic_matmul(op: OnnxOp, emit: Emit) -> SSAValue | None:
    """A is quantised as it comes, per tensor."""
    a, b, b_scale = op.operands[:3]
    if min(rank_of(a), rank_of(b)) < 2:
        return None
    made = DynamicQuantizeOp(a, ui8, symmetric=False)
    emit(made)
    sums = product(emit, made.codes, b, made.zero_point, op.input(3))
    y = emit(DequantizeOp(sums, product_scale(emit, made.scale, b_scale)))
    return _plus(emit, y, op.input(4))


def _plus(emit: Emit, y: SSAValue, bias: SSAValue | None) -> SSAValue:
    return y if bias is None else emit.binary(BinaryKind.ADD, y, bias)


def _integer_matmul(op: OnnxOp, emit: Emit) -> SSAValue | None:
    a, b, a_scale, b_scale = op.operands[:4]
    if min(rank_of(a), rank_of(b)) < 2:
        return None
    sums = product(emit, a, b, op.input(4), op.input(5))
    y = emit(DequantizeOp(sums, product_scale(emit, a_scale, b_scale)))
    return _plus(emit, y, op.input(6))


def _gemm(op: OnnxOp, emit: Emit) -> SSAValue:
    """Its third matrix has the scale of the sums."""
    a, a_scale, b, b_scale = (op.operands[i] for i in (0, 1, 3, 4))
    if integer_attribute(op, "transA"):
        a = emit(TransposeOp(a, [1, 0]))
    if integer_attribute(op, "transB"):
        b = emit(TransposeOp(b, [1, 0]))
    scale = product_scale(emit, a_scale, b_scale)
    alpha = number_attribute(op, "alpha", 1.0)
    scale = scale if alpha == 1.0 else emit.binary(BinaryKind.MUL, scale, alpha)
    y = emit(DequantizeOp(product(emit, a, b, op.input(2), op.input(5)), scale))
    if (bias := op.input(6)) is not None:
        y = emit.binary(BinaryKind.ADD, y, emit(DequantizeOp(bias, scale)))
    y_scale, y_zero = op.input(7), op.input(8)
    if y_scale is None:
        return y
    return requantised(emit, y, y_scale, y_zero, element_of(op.results[0]))


def _through(
    compute: Callable[[OnnxOp, Emit, list[SSAValue]], SSAValue | None], count: int
) -> Converter:
    """A function of real numbers for `count` operands of code, scale and zero point each."""

    def convert(op: OnnxOp, emit: Emit) -> SSAValue | None:
        reals = [_real(op, emit, at) for at in range(0, 3 * count, 3)]
        y = compute(op, emit, reals)
        scale, zero = op.input(3 * count), op.input(3 * count + 1)
        if y is None or scale is None:
            return None
        return requantised(emit, y, scale, zero, element_of(op.results[0]))

    return convert


def _real(op: OnnxOp, emit: Emit, at: int) -> SSAValue:
    """What the codes mean that are an operand, with scale and zero point behind them."""
    codes, scale, zero = (op.input(at + i) for i in range(3))
    if codes is None or scale is None:
        raise ValueError("codes or their scale are missing")
    zero = None if zero is None else scalar(emit, zero)
    return emit(DequantizeOp(codes, scalar(emit, scale), zero))


def _concat(op: OnnxOp, emit: Emit) -> SSAValue:
    parts = [_real(op, emit, at) for at in range(2, len(op.inputs), 3)]
    y = emit(ConcatOp(parts, normal_axis(integer_attribute(op, "axis"), rank_of(parts[0]))))
    return requantised(emit, y, op.operands[0], op.operands[1], element_of(op.results[0]))


def _softmax(op: OnnxOp, emit: Emit, reals: list[SSAValue]) -> SSAValue | None:
    x = reals[0]
    axis = normal_axis(integer_attribute(op, "axis", -1), rank_of(x))
    plain = integer_attribute(op, "opset") >= 13 or axis == rank_of(x) - 1
    return emit(SoftmaxOp(x, axis)) if plain else None


CONVERTERS: dict[str, Converter] = {
    "microsoft.MatMulNBits": _matmul_n_bits,
    "microsoft.DynamicQuantizeMatMul": _dynamic_matmul,
    "microsoft.MatMulIntegerToFloat": _integer_matmul,
    "microsoft.QGemm": _gemm,
    "microsoft.QLinearAdd": _through(lambda op, emit, x: emit.binary(BinaryKind.ADD, *x), 2),
    "microsoft.QLinearMul": _through(lambda op, emit, x: emit.binary(BinaryKind.MUL, *x), 2),
    "microsoft.QLinearSigmoid": _through(
        lambda op, emit, x: emit(UnaryOp(UnaryKind.SIGMOID, x[0])), 1
    ),
    "microsoft.QLinearLeakyRelu": _through(
        lambda op, emit, x: leaky_relu(emit, x[0], number_attribute(op, "alpha", 0.01)), 1
    ),
    "microsoft.QLinearConcat": _concat,
    "microsoft.QLinearSoftmax": _through(_softmax, 1),
}
"""Operator name to converter."""
