"""The key-value cache in the `mllm` dialect."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure

from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.dialects.mllm.contract import agree, all_agree, check, integer
from mllm_compiler.dialects.types import element_of, is_integer, rank_of, shape_of


@irdl_op_definition
class KvAppendOp(IRDLOperation):
    """Append new tokens to a cache: past [B, Hkv, P, D], new [B, T, Hkv*D] -> [B, Hkv, P+T, D].

    C1  past is [B, Hkv, P, D] with kv_heads as its second dim.
    C2  new is [B, T, Hkv*D].
    C3  the result is [B, Hkv, P + T, D]; all have one element type.
    """

    name = "mllm.kv_append"

    past = operand_def(TensorType)
    new = operand_def(TensorType)
    kv_heads = prop_def(IntegerAttr)
    result = result_def(TensorType)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "$past `,` $new attr-dict `:` functional-type(operands, results)"

    def __init__(self, past: SSAValue, new: SSAValue, *, kv_heads: int) -> None:
        batch, heads, length, size = shape_of(past)
        dims = (batch, heads, length + shape_of(new)[1], size)
        super().__init__(
            operands=[past, new],
            properties={"kv_heads": integer(kv_heads)},
            result_types=[tensor_of(element_of(past), dims)],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        past, new, heads = shape_of(self.past), shape_of(self.new), self.kv_heads.value.data
        fits = len(past) == 4 and agree(past[1], heads)
        check(self, 1, fits, "past must be [B, Hkv, P, D]")
        fits = len(new) == 3 and agree(new[2], past[3] * heads) and agree(new[0], past[0])
        check(self, 2, fits, "new must be [B, T, Hkv*D]")
        dims = (past[0], Dim.const(heads), past[2] + new[1], past[3])
        fits = all_agree(shape_of(self.result), dims)
        fits &= element_of(self.past) == element_of(self.new) == element_of(self.result)
        check(self, 3, fits, "the result must be [B, Hkv, P + T, D]")


@irdl_op_definition
class KvViewOp(IRDLOperation):
    """Read a paged cache as one tensor: pages [N, Hkv, page, D], table [B, M] -> [B, Hkv, S, D].

    Token s of sequence b lies in page table[b, s // page] at s mod page (Kwon et al. 2023).

    C1  pages are rank 4.
    C2  table is [B, M] of integers.
    C3  the result is [B, Hkv, S, D], of the type of pages, and S fits into M pages.
    """

    name = "mllm.kv_view"

    pages = operand_def(TensorType)
    table = operand_def(TensorType)
    result = result_def(TensorType)

    traits = traits_def(Pure())
    assembly_format = "$pages `,` $table attr-dict `:` functional-type(operands, results)"

    def __init__(self, pages: SSAValue, table: SSAValue, length: Dim | int) -> None:
        _, heads, _, size = shape_of(pages)
        dims = (shape_of(table)[0], heads, Dim.of(length), size)
        super().__init__(operands=[pages, table], result_types=[tensor_of(element_of(pages), dims)])

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        pages = shape_of(self.pages)
        check(self, 1, len(pages) == 4, "pages must be [N, Hkv, page, D]")
        fits = rank_of(self.table) == 2 and is_integer(element_of(self.table))
        check(self, 2, fits, "table must be [B, M] of integers")
        batch, count = shape_of(self.table)
        result = shape_of(self.result)
        fits = len(result) == 4 and all_agree((batch, pages[1], pages[3]), (*result[:2], result[3]))
        room = (pages[2] * count - result[2]).as_int() if fits else None
        fits &= (room is None or room >= 0) and element_of(self.pages) == element_of(self.result)
        check(self, 3, fits, "the result must be [B, Hkv, S, D] within M pages")
