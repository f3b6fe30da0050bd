"""Weights that stay codes in memory: products with them, and rows of tables of them.

A weight [N, K] of codes lies in panels of 16 rows in which four codes of a row stand side by side,
the layout `quads16` of `cpu.weight`: [ceil(N / 16), groups, 16, 4]. Its scales and zero points
[N, blocks] lie in panels [ceil(N / 16), blocks, 16], where byte (p, b, j) holds the codes of row
16p + j from number 8b / bits on, low bits first; or they are scalars.
"""

from __future__ import annotations

from typing import ClassVar, Final

from xdsl.dialects.builtin import IntegerAttr, StringAttr, TensorType, i8
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
    result_def,
    var_result_def,
)

from mllm_compiler.dialects.cpu.base import LANES, CpuOp
from mllm_compiler.dialects.cpu.linalg import ACTIVATIONS, are_columns
from mllm_compiler.dialects.cpu.weights import QUAD
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm.contract import all_agree, check
from mllm_compiler.dialects.types import element_of, i2, i4, is_float, shape_of, ui2, ui4, ui8

FORMATS: Final[dict[str, Attribute]] = {
    "i8": i8,
    "ui8": ui8,
    "i4": i4,
    "ui4": ui4,
    "i2": i2,
    "ui2": ui2,
}
"""What a code can be, in the order of the runtime's numbers."""

CODES: Final = {"code": tuple(FORMATS), "zero_code": tuple(FORMATS)}


def byte_count(count: Dim, code: str) -> Dim:
    """The bytes of some codes."""
    each = 8 // int(code.lstrip("ui"))
    return count if each == 1 else (count + (each - 1)) // each


def group_count(count: Dim, code: str) -> Dim:
    """The groups of four bytes of some codes of a row."""
    each = QUAD * 8 // int(code.lstrip("ui"))
    return (count + (each - 1)) // each


def _check_weight(op: CodedWeight, depth: Dim) -> None:
    """C1 to C3 of a weight [n, depth]."""
    n, size, code = op.n.value.data, op.block_size.value.data, op.code.data
    check(op, 3, size >= 0, f"block_size {size}")
    panels = -(-n // LANES)
    blocks = Dim.const(1) if size == 0 else (depth + (size - 1)) // size
    fits = all_agree(shape_of(op.w), (panels, group_count(depth, code), LANES, QUAD))
    check(op, 1, fits, "w is [ceil(n / 16), groups of K codes, 16, 4]")
    fits = _is_side(op.w_scale, (panels, blocks, LANES)) and is_float(element_of(op.w_scale))
    zeros = (panels, byte_count(blocks, op.zero_code.data), LANES)
    fits &= op.w_zero is None or _is_side(op.w_zero, zeros)
    check(op, 2, fits, "w_scale and w_zero are scalars or [ceil(n / 16), blocks, 16]")


def _is_side(value: SSAValue, panels: tuple[int | Dim, ...]) -> bool:
    return not shape_of(value) or all_agree(shape_of(value), panels)


@irdl_op_definition
class QuantizedLinearOp(CpuOp):
    """Multiply rows of codes by a weight of codes: x [..., K] -> f32 [..., n].

    Sums of integers are exact; blocks are scaled in double precision, in their order, and the
    result is rounded once: see `mllm.quantized_linear`.

    C1  w is [ceil(n / 16), groups of K codes, 16, 4].
    C2  w_scale and w_zero are scalars or [ceil(n / 16), blocks, 16]; w_scale is f32 or f16.
    C3  block_size is 0 or more.
    C4  x_scale and x_zero are scalars, [..., 1] or [..., blocks].
    C5  bias is [n].
    C6  y is x with the last dimension n; of several results each is x with another last dimension,
        all but the last multiples of 16, together n.
    """

    name = "cpu.quantized_linear"
    ENUMS: ClassVar[dict[str, tuple[str, ...]]] = CODES
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    x = operand_def(TensorType)
    x_scale = operand_def(TensorType)
    w = operand_def(TensorType)
    w_scale = operand_def(TensorType)
    w_zero = opt_operand_def(TensorType)
    x_zero = opt_operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    n = prop_def(IntegerAttr)
    code = prop_def(StringAttr)
    zero_code = prop_def(StringAttr)
    block_size = prop_def(IntegerAttr)
    y = result_def(TensorType)
    more = var_result_def(TensorType)

    def check_contract(self) -> None:
        """C1 to C6."""
        x, n = shape_of(self.x), self.n.value.data
        _check_weight(self, x[-1])
        sides = [shape_of(v) for v in (self.x_scale, self.x_zero) if v is not None]
        fits = all(not s or all_agree(s[:-1], x[:-1]) for s in sides)
        check(self, 4, fits, "x_scale and x_zero are scalars, [..., 1] or [..., blocks]")
        fits = self.bias is None or all_agree(shape_of(self.bias), (n,))
        check(self, 5, fits, "bias is [n]")
        check(self, 6, are_columns(self.results, self.x, n), "y is [..., n], cut at panels")


@irdl_op_definition
class F32DequantizedLinearOp(CpuOp):
    """Multiply reals by a weight that stays codes in memory: x [..., K] -> [..., n].

    The codes are turned into f32 a tile at a time; then as `cpu.f32_linear`.

    C1  w is [ceil(n / 16), groups of K codes, 16, 4].
    C2  w_scale and w_zero are scalars or [ceil(n / 16), blocks, 16]; w_scale is f32 or f16.
    C3  block_size is 0 or more.
    C4  bias is [n].
    C5  y is x with the last dimension n; of several results each is x with another last dimension,
        all but the last multiples of 16, together n.
    """

    name = "cpu.f32_dequantized_linear"
    ENUMS: ClassVar[dict[str, tuple[str, ...]]] = {**CODES, "activation": ACTIVATIONS}
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    x = operand_def(TensorType)
    w = operand_def(TensorType)
    w_scale = operand_def(TensorType)
    w_zero = opt_operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    n = prop_def(IntegerAttr)
    code = prop_def(StringAttr)
    zero_code = prop_def(StringAttr)
    block_size = prop_def(IntegerAttr)
    activation = prop_def(StringAttr)
    y = result_def(TensorType)
    more = var_result_def(TensorType)

    def check_contract(self) -> None:
        """C1 to C5."""
        x, n = shape_of(self.x), self.n.value.data
        _check_weight(self, x[-1])
        fits = self.bias is None or all_agree(shape_of(self.bias), (n,))
        check(self, 4, fits, "bias is [n]")
        check(self, 5, are_columns(self.results, self.x, n), "y is [..., n], cut at panels")


@irdl_op_definition
class F32DequantizedEmbeddingOp(CpuOp):
    """Rows, as f32, of a table that stays codes: ids [...], w of [n, D] -> [..., D].

    An id may be negative, and then counts from the end.

    C1  w is [ceil(n / 16), bytes of D codes, 16].
    C2  w_scale and w_zero are scalars or [ceil(n / 16), blocks, 16]; w_scale is f32 or f16.
    C3  block_size is 0 or more.
    C4  y is ids with a last dimension D.
    """

    name = "cpu.f32_dequantized_embedding"
    ENUMS: ClassVar[dict[str, tuple[str, ...]]] = CODES
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    ids = operand_def(TensorType)
    w = operand_def(TensorType)
    w_scale = operand_def(TensorType)
    w_zero = opt_operand_def(TensorType)
    n = prop_def(IntegerAttr)
    code = prop_def(StringAttr)
    zero_code = prop_def(StringAttr)
    block_size = prop_def(IntegerAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 to C4."""
        y = shape_of(self.y)
        fits = len(y) > 0 and all_agree(y[:-1], shape_of(self.ids))
        check(self, 4, fits, "y is ids with a last dimension D")
        _check_weight(self, y[len(y) - 1])


CodedWeight = QuantizedLinearOp | F32DequantizedLinearOp | F32DequantizedEmbeddingOp
"""The ops that read a weight of codes."""
