"""Codes: to and from real numbers, and exact products of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, StringAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_result_def,
    prop_def,
    result_def,
)

from mllm_compiler.dialects.calls import ints
from mllm_compiler.dialects.cpu.base import CpuOp
from mllm_compiler.dialects.cpu.coded import FORMATS, byte_count
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm.contract import agree, all_agree, check
from mllm_compiler.dialects.types import shape_of


@irdl_op_definition
class QuantizeOp(CpuOp):
    """Real numbers to codes of 8 or 16 bits with given scales: see `mllm.quantize`.

    Scale and zero point are repeated to x as in NumPy; along axis, where it is not -1, each serves
    block_size elements.

    C1  y has x's shape.
    """

    name = "cpu.quantize"
    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    zero_point = opt_operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    block_size = prop_def(IntegerAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        check(self, 1, all_agree(shape_of(self.y), shape_of(self.x)), "y has x's shape")


@irdl_op_definition
class DequantizeOp(CpuOp):
    """Codes to real numbers, (x - zero_point) scale: see `mllm.dequantize` and `cpu.quantize`.

    C1  y has x's shape.
    """

    name = "cpu.dequantize"
    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    zero_point = opt_operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    block_size = prop_def(IntegerAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        check(self, 1, all_agree(shape_of(self.y), shape_of(self.x)), "y has x's shape")


@irdl_op_definition
class DynamicQuantizeOp(CpuOp):
    """Real numbers to codes with scales of the data: see `mllm.dynamic_quantize`.

    axis -1 stands for one scale for all, block_size 0 for one for each line along the axis.

    C1  codes have x's shape.
    """

    name = "cpu.dynamic_quantize"
    x = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    block_size = prop_def(IntegerAttr)
    codes = result_def(TensorType)
    scale = result_def(TensorType)
    zero_point = opt_result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        check(self, 1, all_agree(shape_of(self.codes), shape_of(self.x)), "codes have x's shape")


@irdl_op_definition
class UnpackOp(CpuOp):
    """Codes that share bytes, each in a byte of its own: [bytes] -> [...].

    C1  x is the bytes that the codes of y fill.
    """

    name = "cpu.unpack"
    ENUMS: ClassVar[dict[str, tuple[str, ...]]] = {"code": tuple(FORMATS)}
    x = operand_def(TensorType)
    code = prop_def(StringAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        count = Dim.const(1)
        for dim in shape_of(self.y):
            count = count * dim
        fits = all_agree(shape_of(self.x), (byte_count(count, self.code.data),))
        check(self, 1, fits, "x is the bytes that y's codes fill")


@irdl_op_definition
class IntegerMatmulOp(CpuOp):
    """Multiply matrices of codes less their zero points: see `mllm.integer_matmul`.

    C1  both operands have two axes or more and the inner extents agree.
    C2  a_zero is a scalar or a's dims with 1 along the last axis, b_zero one or b's with 1 along
        the last but one.
    """

    name = "cpu.integer_matmul"
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    a = operand_def(TensorType)
    b = operand_def(TensorType)
    a_zero = opt_operand_def(TensorType)
    b_zero = opt_operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        a, b = shape_of(self.a), shape_of(self.b)
        fits = len(a) > 1 and len(b) > 1 and agree(a[len(a) - 1], b[len(b) - 2])
        check(self, 1, fits, "a is [..., M, K] and b is [..., K, N]")
        fits = _is_zero_of(self.a_zero, (*a[:-1], 1))
        fits &= _is_zero_of(self.b_zero, (*b[:-2], 1, *b[-1:]))
        check(self, 2, fits, "a_zero is a scalar or [..., M, 1], b_zero one or [..., 1, N]")


@irdl_op_definition
class IntegerConvOp(CpuOp):
    """Convolve codes less their zero points: see `mllm.integer_conv`.

    C1  strides and dilations have one entry for each spatial axis, pads two.
    C2  x_zero is a scalar, w_zero one or [filters].
    """

    name = "cpu.integer_conv"
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    x = operand_def(TensorType)
    w = operand_def(TensorType)
    x_zero = opt_operand_def(TensorType)
    w_zero = opt_operand_def(TensorType)
    strides = prop_def(DenseArrayBase)
    pads = prop_def(DenseArrayBase)
    dilations = prop_def(DenseArrayBase)
    groups = prop_def(IntegerAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        spatial = len(shape_of(self.x)) - 2
        counts = [len(ints(a)) for a in (self.strides, self.dilations)]
        fits = counts == [spatial] * 2 and len(ints(self.pads)) == 2 * spatial
        check(self, 1, fits, "one entry for each spatial axis, two for pads")
        fits = _is_zero_of(self.x_zero, ()) and _is_zero_of(self.w_zero, shape_of(self.w)[:1])
        check(self, 2, fits, "x_zero is a scalar, w_zero one or [filters]")


def _is_zero_of(zero: SSAValue | None, dims: Sequence[Dim | int]) -> bool:
    """Whether a zero point is absent, a scalar or has the dims."""
    return zero is None or not shape_of(zero) or all_agree(shape_of(zero), dims)
