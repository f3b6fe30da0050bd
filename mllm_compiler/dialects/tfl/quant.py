"""Quantised tensors of TFLite."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, TensorType, i16, i32, i64
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, prop_def, result_def

from mllm_compiler.dialects.mllm.contract import check
from mllm_compiler.dialects.tfl.base import TflOp
from mllm_compiler.dialects.types import element_of, extents, i2, i4, i8

CODES = (i8, i4, i2, i16, i32, i64)


@irdl_op_definition
class PseudoQconstOp(TflOp):
    """Codes and what they mean, as one constant: codes, scales? -> weights.

    No operator: in the file both are one tensor. Without scales, `scale` and `zero_point` are those
    of all codes. With them, each element along an axis has one, or, of a matrix [N, K], each block
    of a row, in which case these are a constant of f16.

    C1  codes are i8, i4, i2, i16, i32 or i64.
    C2  scales is [N, 1] where codes have N elements along quantized_dimension, or
        [N, K / block_size]; block_size is 0 for the former, else a multiple of 32.
    C3  weights has the type of codes.
    """

    name = "tfl.pseudo_qconst"
    codes = operand_def(TensorType)
    scales = opt_operand_def(TensorType)
    block_size = prop_def(IntegerAttr, default_value=IntegerAttr(0, i64))
    quantized_dimension = prop_def(IntegerAttr, default_value=IntegerAttr(0, i64))
    weights = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 to C3."""
        codes, size = extents(self.codes), self.block_size.value.data
        axis = self.quantized_dimension.value.data
        fits = 0 <= axis < max(1, len(codes)) and element_of(self.codes) in CODES
        check(self, 1, fits, "codes are i8, i4, i2, i16, i32 or i64")
        if self.scales is not None:
            blocks = 1 if size == 0 else codes[-1] // size
            fits = extents(self.scales) == (codes[axis], blocks) and size % 32 == 0
            fits = fits and (size == 0 or len(codes) == 2)
            check(self, 2, fits, "scales is [N, 1], or [N, K / block_size], a multiple of 32")
        fits = (self.scales is None) == (self.scale is not None)
        check(self, 2, fits, "codes have scales, or one scale")
        check(self, 3, self.codes.type == self.weights.type, "weights has the type of codes")


@irdl_op_definition
class QuantizeOp(TflOp):
    """Reals as codes of 8 or 16 bits: x -> y; the nearest, halves to even.

    C1  y has the shape of x, and an encoding.
    """

    name = "tfl.quantize"
    x = operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        fits = extents(self.x) == extents(self.y) and self.scale is not None
        check(self, 1, fits, "one shape, and an encoding")


@irdl_op_definition
class DequantizeOp(TflOp):
    """Halves, or codes with their scales, as f32: x -> y.

    C1  y has the shape of x.
    """

    name = "tfl.dequantize"
    x = operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        check(self, 1, extents(self.x) == extents(self.y), "one shape")
