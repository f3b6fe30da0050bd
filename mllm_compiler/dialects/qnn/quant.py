"""Codes that a graph knows from the start."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr, TensorType, i64
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def

from mllm_compiler.dialects.mllm.contract import check
from mllm_compiler.dialects.qnn.base import QnnOp
from mllm_compiler.dialects.types import element_of, extents, i4, i8, i16, i32, ui8, ui16

ELEMENTS = (i4, i8, i16, i32, ui8, ui16)


@irdl_op_definition
class StaticTensorOp(QnnOp):
    """Codes and what they mean, as one static tensor: codes, scales -> y.

    No operator: QNN writes both into one tensor. Where `axis` stands, each of its elements has a
    scale; with `block_size`, each block along the other axis, a whole multiple of that scale, 1 to
    15 ("LPBQ").

    C1  codes are i4, i8, i16, i32, ui8 or ui16, and y has their type.
    C2  scales is [1], or [N] along the axis, or [N, K / block_size].
    C3  codes of 4 bits have no zero point: HTP takes one, and computes something else.
    """

    name = "qnn.static_tensor"
    ACTIVATION: ClassVar[bool] = False
    codes = operand_def(TensorType)
    scales = operand_def(TensorType)
    axis = prop_def(IntegerAttr, default_value=IntegerAttr(-1, i64))
    block_size = prop_def(IntegerAttr, default_value=IntegerAttr(0, i64))
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 to C3."""
        element, codes = element_of(self.codes), extents(self.codes)
        fits = element in ELEMENTS and self.codes.type == self.y.type
        check(self, 1, fits, "codes are integers, and y has their type")
        axis, size = self.axis.value.data, self.block_size.value.data
        wanted = (1,) if axis < 0 else codes[axis : axis + 1]
        if size:
            wanted = (*wanted, codes[1 - axis] // size) if len(codes) == 2 else ()
        check(self, 2, extents(self.scales) == wanted, "scales is [1], [N] or [N, K / block_size]")
        check(self, 3, element != i4 or self.zero == 0, "codes of 4 bits have no zero point")
