"""Quantised tensors of TFLite."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, TensorType, i64
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def

from mllm_compiler.dialects.mllm.contract import check
from mllm_compiler.dialects.tfl.base import TflOp
from mllm_compiler.dialects.types import element_of, extents, i2, i4, i8

CODES = (i8, i4, i2)


@irdl_op_definition
class PseudoQconstOp(TflOp):
    """Codes [N, K] and what they mean, as one constant: codes, scale -> weights.

    No operator: in the file both are one tensor. A row has one scale, or one for each block, in
    which case these are a constant of f16.

    C1  codes are i8, i4 or i2, [N, K].
    C2  scale is [N, 1], or [N, K / block_size]; block_size is 0 for rows, else a multiple of 32.
    C3  weights has the type of codes.
    """

    name = "tfl.pseudo_qconst"
    codes = operand_def(TensorType)
    scale = operand_def(TensorType)
    block_size = prop_def(IntegerAttr, default_value=IntegerAttr(0, i64))
    weights = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 to C3."""
        codes, size = extents(self.codes), self.block_size.value.data
        fits = len(codes) == 2 and element_of(self.codes) in CODES
        check(self, 1, fits, "codes are i8, i4 or i2, [N, K]")
        blocks = 1 if size == 0 else codes[1] // size
        fits = extents(self.scale) == (codes[0], blocks) and size % 32 == 0
        check(self, 2, fits, "scale is [N, 1], or [N, K / block_size], a multiple of 32")
        check(self, 3, self.codes.type == self.weights.type, "weights has the type of codes")


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
