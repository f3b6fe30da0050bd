"""Ops of the `mllm` dialect that carry something along an axis."""

from __future__ import annotations

from xdsl.dialects.builtin import BoolAttr, IntegerAttr, TensorType
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

from mllm_compiler.dialects.dims import tensor_of
from mllm_compiler.dialects.mllm.contract import all_agree, check, integer, normal_axis
from mllm_compiler.dialects.types import element_of, is_float, is_integer, rank_of, shape_of


@irdl_op_definition
class CumsumOp(IRDLOperation):
    """Sum all elements up to each one along an axis (ONNX CumSum): [...] -> [...].

    Exclusive leaves the element itself out; reverse sums from the end.

    C1  axis is one of x.
    C2  the result has the type of x, which is floating point or integer.
    """

    name = "mllm.cumsum"

    x = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    exclusive = prop_def(BoolAttr, default_value=BoolAttr.from_bool(False))
    reverse = prop_def(BoolAttr, default_value=BoolAttr.from_bool(False))
    result = result_def(TensorType)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "$x attr-dict `:` functional-type(operands, results)"

    def __init__(
        self, x: SSAValue, axis: int, *, exclusive: bool = False, reverse: bool = False
    ) -> None:
        super().__init__(
            operands=[x],
            properties={
                "axis": integer(normal_axis(axis, rank_of(x))),
                "exclusive": BoolAttr.from_bool(exclusive),
                "reverse": BoolAttr.from_bool(reverse),
            },
            result_types=[tensor_of(element_of(x), shape_of(x))],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        axis, element = self.axis.value.data, element_of(self.x)
        check(self, 1, 0 <= axis < rank_of(self.x), f"axis {axis} of rank {rank_of(self.x)}")
        fits = all_agree(shape_of(self.result), shape_of(self.x))
        fits &= element_of(self.result) == element and (is_float(element) or is_integer(element))
        check(self, 2, fits, "the result must have the type of x")


@irdl_op_definition
class SelectiveScanOp(IRDLOperation):
    """Run a selective state space over tokens (Gu & Dao 2023): x [B, T, D] -> [B, T, D].

    Each channel d has N states h, which decay, take the input in, and are read, token by token:

        h = exp(step_t a) h + step_t b_t x_t,    y_t = sum over the states of c_t h

    with step [B, T, D], a [D, N], b and c [B, T, N], and h [B, D, N], which begins as `state` and
    ends as `last`.

    C1  x is [B, T, D] and step has its shape.
    C2  a is [D, N].
    C3  b and c are [B, T, N].
    C4  state is [B, D, N].
    C5  y is [B, T, D] and last [B, D, N]; all have one floating-point type.
    """

    name = "mllm.selective_scan"

    x = operand_def(TensorType)
    step = operand_def(TensorType)
    a = operand_def(TensorType)
    b = operand_def(TensorType)
    c = operand_def(TensorType)
    state = operand_def(TensorType)
    y = result_def(TensorType)
    last = result_def(TensorType)

    traits = traits_def(Pure())
    assembly_format = (
        "$x `,` $step `,` $a `,` $b `,` $c `,` $state attr-dict `:` "
        "functional-type(operands, results)"
    )

    def __init__(
        self, x: SSAValue, step: SSAValue, a: SSAValue, b: SSAValue, c: SSAValue, state: SSAValue
    ) -> None:
        element = element_of(x)
        super().__init__(
            operands=[x, step, a, b, c, state],
            result_types=[tensor_of(element, shape_of(v)) for v in (x, state)],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        x, a = shape_of(self.x), shape_of(self.a)
        fits = len(x) == 3 and all_agree(shape_of(self.step), x)
        check(self, 1, fits, "x and step must be [B, T, D]")
        batch, tokens, channels = x
        check(self, 2, len(a) == 2 and all_agree(a[:1], (channels,)), "a must be [D, N]")
        row = (batch, tokens, a[1])
        fits = all_agree(shape_of(self.b), row) and all_agree(shape_of(self.c), row)
        check(self, 3, fits, "b and c must be [B, T, N]")
        states = (batch, channels, a[1])
        check(self, 4, all_agree(shape_of(self.state), states), "state must be [B, D, N]")
        fits = all_agree(shape_of(self.y), x) and all_agree(shape_of(self.last), states)
        elements = {element_of(v) for v in (*self.operands, *self.results)}
        fits &= len(elements) == 1 and is_float(element_of(self.x))
        check(self, 5, fits, "y must be [B, T, D] and last [B, D, N], all of one type")
