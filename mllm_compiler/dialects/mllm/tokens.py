"""Choosing among tokens in the `mllm` dialect."""

from __future__ import annotations

from xdsl.dialects.builtin import BoolAttr, IntegerAttr, TensorType, i64
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

from mllm_compiler.dialects.dims import UNKNOWN, Dim, tensor_of
from mllm_compiler.dialects.mllm.contract import agree, all_agree, check, integer, normal_axis
from mllm_compiler.dialects.types import element_of, is_float, is_integer, rank_of, shape_of


@irdl_op_definition
class TokenImportanceOp(IRDLOperation):
    """Score tokens by the attention that the first query pays them: q, k [B, T, H*D] -> [B, T].

    The score of token s is the mean over the heads of softmax(q_0 k^T / sqrt(D)) at s
    (Liang et al. 2022, EViT).

    C1  q and k are [B, T, H*D] of one floating-point type, and heads divides H*D.
    C2  the result is [B, T] of that type.
    """

    name = "mllm.token_importance"

    q = operand_def(TensorType)
    k = operand_def(TensorType)
    heads = prop_def(IntegerAttr)
    result = result_def(TensorType)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "$q `,` $k attr-dict `:` functional-type(operands, results)"

    def __init__(self, q: SSAValue, k: SSAValue, *, heads: int) -> None:
        super().__init__(
            operands=[q, k],
            properties={"heads": integer(heads)},
            result_types=[tensor_of(element_of(q), shape_of(k)[:2])],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        q, k, heads = shape_of(self.q), shape_of(self.k), self.heads.value.data
        fits = len(q) == len(k) == 3 and agree(q[0], k[0]) and agree(q[2], k[2]) and heads > 0
        width = q[-1].as_int()
        fits &= width is None or width % heads == 0
        fits &= element_of(self.q) == element_of(self.k) and is_float(element_of(self.q))
        check(self, 1, fits, "q and k must be [B, T, H*D] of one float type")
        fits = all_agree(shape_of(self.result), k[:2])
        check(self, 2, fits and element_of(self.result) == element_of(self.q), "result: [B, T]")


@irdl_op_definition
class TopKOp(IRDLOperation):
    """The k largest elements along an axis and their indices (ONNX TopK): x -> values, indices.

    Equal elements come in the order of their indices; `smallest` asks for the other end. sorted by
    value, unless `by_index` asks for ascending indices.

    C1  axis is one of x.
    C2  values and indices (i64) have the dims of x but along axis, where they are k.
    """

    name = "mllm.top_k"

    x = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    smallest = prop_def(BoolAttr, default_value=BoolAttr.from_bool(False))
    by_index = prop_def(BoolAttr, default_value=BoolAttr.from_bool(False))
    values = result_def(TensorType)
    indices = result_def(TensorType)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "$x attr-dict `:` functional-type(operands, results)"

    def __init__(
        self,
        x: SSAValue,
        k: Dim | int,
        axis: int,
        *,
        smallest: bool = False,
        by_index: bool = False,
    ) -> None:
        dims, axis = list(shape_of(x)), normal_axis(axis, rank_of(x))
        dims[axis] = Dim.of(k)
        super().__init__(
            operands=[x],
            properties={
                "axis": integer(axis),
                "smallest": BoolAttr.from_bool(smallest),
                "by_index": BoolAttr.from_bool(by_index),
            },
            result_types=[tensor_of(element_of(x), dims), tensor_of(i64, dims)],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        dims, axis = shape_of(self.x), self.axis.value.data
        check(self, 1, 0 <= axis < len(dims), f"axis {axis} of a tensor of rank {len(dims)}")
        values, indices = shape_of(self.values), shape_of(self.indices)
        fits = all_agree(values, indices) and len(values) == len(dims)
        kept = (*dims[:axis], values[axis] if fits else UNKNOWN, *dims[axis + 1 :])
        fits = fits and all_agree(kept, values)
        fits &= element_of(self.values) == element_of(self.x)
        check(self, 2, fits and element_of(self.indices) == i64, "values and indices")


@irdl_op_definition
class TokenGatherOp(IRDLOperation):
    """Keep the tokens that indices name: x [B, T, D], indices [B, K] -> [B, K, D].

    C1  x is rank 3.
    C2  indices are [B, K], integers from 0 to T - 1.
    C3  the result is [B, K, D] of the element type of x.
    """

    name = "mllm.token_gather"

    x = operand_def(TensorType)
    indices = operand_def(TensorType)
    result = result_def(TensorType)

    traits = traits_def(Pure())
    assembly_format = "$x `,` $indices attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue, indices: SSAValue) -> None:
        dims = (*shape_of(indices), shape_of(x)[2])
        super().__init__(operands=[x, indices], result_types=[tensor_of(element_of(x), dims)])

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        x, indices = shape_of(self.x), shape_of(self.indices)
        check(self, 1, len(x) == 3, "x must be [B, T, D]")
        fits = (
            len(indices) == 2 and agree(indices[0], x[0]) and is_integer(element_of(self.indices))
        )
        check(self, 2, fits, "indices must be [B, K] of integers")
        fits = all_agree(shape_of(self.result), (*indices, x[2]))
        fits &= element_of(self.result) == element_of(self.x)
        check(self, 3, fits, "the result must be [B, K, D]")
