"""Ops of the `mllm` dialect that move elements without computing on them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, IntegerAttr, TensorType, i64
from xdsl.ir import SSAValue
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import Pure

from mllm_compiler.dialects.dims import Dim, DimsAttr, tensor_of
from mllm_compiler.dialects.mllm.contract import (
    agree,
    all_agree,
    broadcast_dims,
    check,
    int_list,
    integer,
    integers,
    normal_axis,
    number,
)
from mllm_compiler.dialects.types import (
    element_of,
    is_integer,
    rank_of,
    shape_of,
    tensor_type,
)


@irdl_op_definition
class ReshapeOp(IRDLOperation):
    """The same elements in row-major order under other dims: [...] -> the result type.

    C1  x and the result have equally many elements.
    C2  x and the result have one element type.
    """

    name = "mllm.reshape"

    x = operand_def(TensorType)
    result = result_def(TensorType)

    traits = traits_def(Pure())
    assembly_format = "$x attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue, dims: Sequence[Dim | int]) -> None:
        super().__init__(operands=[x], result_types=[tensor_of(element_of(x), dims)])

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        before, after = (
            prod((d.as_int() or 0 for d in dims), start=1)
            for dims in (shape_of(self.x), shape_of(self.result))
        )
        static = all(d.as_int() is not None for d in (*shape_of(self.x), *shape_of(self.result)))
        check(self, 1, not static or before == after, f"{before} elements into {after}")
        check(self, 2, element_of(self.x) == element_of(self.result), "one element type")


@irdl_op_definition
class TransposeOp(IRDLOperation):
    """Reorder the axes: axis i of the result is axis perm[i] of x.

    C1  perm is a permutation of the axes of x.
    C2  the result has the permuted dims and the element type of x.
    """

    name = "mllm.transpose"

    x = operand_def(TensorType)
    perm = prop_def(DenseArrayBase)
    result = result_def(TensorType)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "$x attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue, perm: Sequence[int]) -> None:
        dims = shape_of(x)
        super().__init__(
            operands=[x],
            properties={"perm": integers(perm)},
            result_types=[tensor_of(element_of(x), [dims[p] for p in perm])],
        )

    @property
    def permutation(self) -> tuple[int, ...]:
        """The permutation as integers."""
        return int_list(self.perm)

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        dims, perm = shape_of(self.x), self.permutation
        check(self, 1, sorted(perm) == list(range(len(dims))), f"perm {perm}, rank {len(dims)}")
        fits = all_agree(shape_of(self.result), [dims[p] for p in perm])
        check(self, 2, fits and element_of(self.x) == element_of(self.result), "the result type")


def _without(dims: tuple[Dim, ...], axis: int) -> tuple[Dim, ...]:
    return (*dims[:axis], *dims[axis + 1 :])


@irdl_op_definition
class ConcatOp(IRDLOperation):
    """Join tensors along an axis.

    C1  there is at least one operand, and axis is one of theirs.
    C2  operands and result have one element type and agree in all dims but axis.
    C3  along axis the result is the sum of the operands.
    """

    name = "mllm.concat"

    xs = var_operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    result = result_def(TensorType)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "$xs attr-dict `:` functional-type(operands, results)"

    def __init__(self, xs: Sequence[SSAValue], axis: int) -> None:
        axis = normal_axis(axis, rank_of(xs[0]))
        dims = list(shape_of(xs[0]))
        dims[axis] = sum((shape_of(x)[axis] for x in xs[1:]), start=dims[axis])
        super().__init__(
            operands=[xs],
            properties={"axis": integer(axis)},
            result_types=[tensor_of(element_of(xs[0]), dims)],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        axis, result = self.axis.value.data, shape_of(self.result)
        check(self, 1, len(self.xs) > 0 and 0 <= axis < len(result), f"axis {axis}")
        for x in self.xs:
            dims = shape_of(x)
            fits = len(dims) == len(result) and element_of(x) == element_of(self.result)
            fits = fits and all_agree(_without(dims, axis), _without(result, axis))
            check(self, 2, fits, f"{tensor_type(x)} into {self.result.type}")
        total = sum((shape_of(x)[axis] for x in self.xs), start=Dim())
        check(self, 3, agree(total, result[axis]), f"{total} along axis {axis}")


@irdl_op_definition
class SliceOp(IRDLOperation):
    """Take elements in steps: element i of axis a is element starts[a] + i steps[a] of x.

    starts are dims (expressions over the symbols of the function's arguments), one an axis; the
    result type says how many elements are taken.

    C1  starts and steps have one entry an axis of x, and no step is 0.
    C2  the result has the rank and element type of x.
    C3  what is taken lies within x.
    """

    name = "mllm.slice"

    x = operand_def(TensorType)
    starts = prop_def(DimsAttr)
    steps = prop_def(DenseArrayBase)
    result = result_def(TensorType)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "$x attr-dict `:` functional-type(operands, results)"

    def __init__(
        self,
        x: SSAValue,
        starts: Sequence[Dim | int],
        extents: Sequence[Dim | int],
        steps: Sequence[int] | None = None,
    ) -> None:
        super().__init__(
            operands=[x],
            properties={
                "starts": DimsAttr(tuple(Dim.of(s) for s in starts)),
                "steps": integers(steps or [1] * rank_of(x)),
            },
            result_types=[tensor_of(element_of(x), extents)],
        )

    @property
    def step_list(self) -> tuple[int, ...]:
        """The steps as integers."""
        return int_list(self.steps)

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        rank, steps, starts = rank_of(self.x), self.step_list, self.starts.data
        check(self, 1, len(steps) == len(starts) == rank and 0 not in steps, "one entry an axis")
        fits = rank == rank_of(self.result) and element_of(self.x) == element_of(self.result)
        check(self, 2, fits, "the result must have rank and element type of x")
        for dim, start, step, extent in zip(
            shape_of(self.x), starts, steps, shape_of(self.result), strict=True
        ):
            ends = (start.as_int(), (dim - 1 - start - (extent - 1) * step).as_int())
            empty = extent.as_int() == 0
            last = (start + (extent - 1) * step).as_int()
            inside = ends[0] is None or ends[0] >= 0
            inside &= step < 0 or ends[1] is None or ends[1] >= 0
            inside &= step > 0 or last is None or last >= 0
            check(self, 3, empty or inside, f"{extent} elements from {start} of {dim}")


@irdl_op_definition
class BroadcastOp(IRDLOperation):
    """Repeat axes of extent 1, and add leading ones, up to the result type (ONNX Expand).

    C1  x broadcasts to the result as NumPy does.
    C2  x and the result have one element type.
    """

    name = "mllm.broadcast"

    x = operand_def(TensorType)
    result = result_def(TensorType)

    traits = traits_def(Pure())
    assembly_format = "$x attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue, dims: Sequence[Dim | int]) -> None:
        super().__init__(operands=[x], result_types=[tensor_of(element_of(x), dims)])

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        result = shape_of(self.result)
        dims = broadcast_dims(shape_of(self.x), result)
        check(self, 1, dims is not None and all_agree(dims, result), "x must broadcast")
        check(self, 2, element_of(self.x) == element_of(self.result), "one element type")


@irdl_op_definition
class IotaOp(IRDLOperation):
    """Count: element i is start + i step, a dim expression: -> [n].

    C1  the result is rank 1 of an integer type.
    """

    name = "mllm.iota"

    start = prop_def(DimsAttr)
    step = prop_def(IntegerAttr)
    result = result_def(TensorType)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"

    def __init__(self, count: Dim | int, start: Dim | int = 0, step: int = 1) -> None:
        super().__init__(
            properties={"start": DimsAttr((Dim.of(start),)), "step": integer(step)},
            result_types=[tensor_of(i64, [count])],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        fits = rank_of(self.result) == 1 and is_integer(element_of(self.result))
        check(self, 1, fits and len(self.start.data) == 1, "the result must be [n] of integers")


@irdl_op_definition
class PadOp(IRDLOperation):
    """Surround x with a value: [...] -> [... + before + after].

    C1  before and after have one entry an axis; a negative one cuts.
    C2  the result has the padded dims and the element type of x.
    """

    name = "mllm.pad"

    x = operand_def(TensorType)
    before = prop_def(DenseArrayBase)
    after = prop_def(DenseArrayBase)
    value = prop_def(FloatAttr)
    result = result_def(TensorType)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "$x attr-dict `:` functional-type(operands, results)"

    def __init__(
        self, x: SSAValue, before: Sequence[int], after: Sequence[int], value: float = 0.0
    ) -> None:
        dims = [d + b + a for d, b, a in zip(shape_of(x), before, after, strict=True)]
        super().__init__(
            operands=[x],
            properties={
                "before": integers(before),
                "after": integers(after),
                "value": number(value),
            },
            result_types=[tensor_of(element_of(x), dims)],
        )

    @property
    def amounts(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Before and after as integers."""
        return int_list(self.before), int_list(self.after)

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        dims, (before, after) = shape_of(self.x), self.amounts
        check(self, 1, len(before) == len(after) == len(dims), "one entry an axis")
        padded = [d + b + a for d, b, a in zip(dims, before, after, strict=True)]
        fits = all_agree(shape_of(self.result), padded)
        check(self, 2, fits and element_of(self.x) == element_of(self.result), "the result type")
