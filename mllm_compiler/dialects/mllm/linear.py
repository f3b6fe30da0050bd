"""Matrix products and table look-ups of the `mllm` dialect."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure

from mllm_compiler.dialects.dims import tensor_of
from mllm_compiler.dialects.mllm.contract import (
    agree,
    all_agree,
    broadcast_dims,
    check,
    integer,
    normal_axis,
)
from mllm_compiler.dialects.types import element_of, is_float, is_integer, rank_of, shape_of


@irdl_op_definition
class LinearOp(IRDLOperation):
    """Apply an affine map to each row: x [..., K], weight [N, K], bias? [N] -> [..., N].

    The weight is [out, in], as in torch.nn.Linear: y = x weight^T + bias.

    C1  weight is rank 2 and its second dim is the last of x.
    C2  bias is [N].
    C3  the result is [..., N] with the leading dims of x.
    C4  x, weight, bias and the result have one floating-point type.
    """

    name = "mllm.linear"

    x = operand_def(TensorType)
    weight = operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    result = result_def(TensorType)

    traits = traits_def(Pure())
    assembly_format = (
        "$x `,` $weight (`,` $bias^)? attr-dict `:` functional-type(operands, results)"
    )

    def __init__(self, x: SSAValue, weight: SSAValue, bias: SSAValue | None = None) -> None:
        dims = (*shape_of(x)[:-1], shape_of(weight)[0])
        super().__init__(operands=[x, weight, bias], result_types=[tensor_of(element_of(x), dims)])

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        x, weight, result = shape_of(self.x), shape_of(self.weight), shape_of(self.result)
        fits = len(weight) == 2 and len(x) >= 1 and agree(weight[1], x[-1])
        check(self, 1, fits, "weight must be [N, K] where x is [..., K]")
        if self.bias is not None:
            fits = all_agree(shape_of(self.bias), weight[:1])
            check(self, 2, fits, "bias must be [N]")
        fits = all_agree(result, (*x[:-1], weight[0]))
        check(self, 3, fits, "the result must be [..., N]")
        elements = {element_of(v) for v in (*self.operands, self.result)}
        check(self, 4, elements == {element_of(self.x)} and is_float(element_of(self.x)), "dtypes")


@irdl_op_definition
class MatmulOp(IRDLOperation):
    """Multiply matrices: a [..., M, K], b [..., K, N] -> [..., M, N], leading dims broadcast.

    C1  a and b have rank 2 or more and the last dim of a is the one before the last of b.
    C2  the result is the broadcast of the leading dims, then [M, N].
    C3  a, b and the result have one element type.
    """

    name = "mllm.matmul"

    a = operand_def(TensorType)
    b = operand_def(TensorType)
    result = result_def(TensorType)

    traits = traits_def(Pure())
    assembly_format = "$a `,` $b attr-dict `:` functional-type(operands, results)"

    def __init__(self, a: SSAValue, b: SSAValue) -> None:
        left, right = shape_of(a), shape_of(b)
        batch = broadcast_dims(left[:-2], right[:-2])
        if batch is None:
            raise ValueError(f"{a.type} and {b.type} do not broadcast")
        dims = (*batch, left[-2], right[-1])
        super().__init__(operands=[a, b], result_types=[tensor_of(element_of(a), dims)])

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        a, b = shape_of(self.a), shape_of(self.b)
        fits = min(len(a), len(b)) >= 2 and agree(a[-1], b[-2])
        check(self, 1, fits, "a must be [..., M, K] and b [..., K, N]")
        batch = broadcast_dims(a[:-2], b[:-2])
        fits = batch is not None and all_agree(shape_of(self.result), (*batch, a[-2], b[-1]))
        check(self, 2, fits, "the result must be [..., M, N]")
        elements = {element_of(v) for v in (self.a, self.b, self.result)}
        check(self, 3, len(elements) == 1, "one element type")


@irdl_op_definition
class EmbeddingOp(IRDLOperation):
    """Look rows up in a table: table [V, D], ids [...] -> [..., D]; ids from 0 to V - 1.

    C1  table is rank 2.
    C2  ids are integers.
    C3  the result is [..., D] with the dims of ids and the element type of table.
    """

    name = "mllm.embedding"

    table = operand_def(TensorType)
    ids = operand_def(TensorType)
    result = result_def(TensorType)

    traits = traits_def(Pure())
    assembly_format = "$table `,` $ids attr-dict `:` functional-type(operands, results)"

    def __init__(self, table: SSAValue, ids: SSAValue) -> None:
        dims = (*shape_of(ids), shape_of(table)[1])
        super().__init__(operands=[table, ids], result_types=[tensor_of(element_of(table), dims)])

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        check(self, 1, rank_of(self.table) == 2, "table must be [V, D]")
        check(self, 2, is_integer(element_of(self.ids)), "ids must be integers")
        dims = (*shape_of(self.ids), shape_of(self.table)[1])
        fits = all_agree(shape_of(self.result), dims)
        fits &= element_of(self.result) == element_of(self.table)
        check(self, 3, fits, "the result must be [..., D] of the table's type")


@irdl_op_definition
class GatherOp(IRDLOperation):
    """Take slices of one axis by index: x, indices -> x's dims with `axis` replaced by indices'.

    A negative index counts from the end (ONNX Gather).

    C1  axis is one of x.
    C2  indices are integers.
    C3  the result has the dims of x before axis, those of indices, those of x after axis.
    """

    name = "mllm.gather"

    x = operand_def(TensorType)
    indices = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    result = result_def(TensorType)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "$x `,` $indices attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue, indices: SSAValue, axis: int) -> None:
        dims, axis = shape_of(x), normal_axis(axis, rank_of(x))
        taken = (*dims[:axis], *shape_of(indices), *dims[axis + 1 :])
        super().__init__(
            operands=[x, indices],
            properties={"axis": integer(axis)},
            result_types=[tensor_of(element_of(x), taken)],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        dims, axis = shape_of(self.x), self.axis.value.data
        check(self, 1, 0 <= axis < len(dims), f"axis {axis} of a tensor of rank {len(dims)}")
        check(self, 2, is_integer(element_of(self.indices)), "indices must be integers")
        taken = (*dims[:axis], *shape_of(self.indices), *dims[axis + 1 :])
        check(self, 3, all_agree(shape_of(self.result), taken), "the result's dims")
