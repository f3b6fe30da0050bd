"""Normalisations and reductions of the `mllm` dialect."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import BoolAttr, DenseArrayBase, FloatAttr, IntegerAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
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

from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.dialects.mllm.contract import (
    all_agree,
    check,
    int_list,
    integer,
    integers,
    normal_axis,
    number,
)
from mllm_compiler.dialects.mllm.kinds import ReduceKind, ReduceKindAttr
from mllm_compiler.dialects.types import element_of, is_float, rank_of, shape_of


@irdl_op_definition
class LayerNormOp(IRDLOperation):
    """Bring each row to mean 0 and variance 1: x [..., D], weight? [D], bias? [D] -> [..., D].

    y = (x - mean) / sqrt(variance + epsilon) * weight + bias over the last axis (Ba et al. 2016).

    C1  weight and bias are [D].
    C2  epsilon is not negative.
    C3  the result has the type of x, which is floating point.
    """

    name = "mllm.layer_norm"

    x = operand_def(TensorType)
    weight = opt_operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    epsilon = prop_def(FloatAttr)
    result = result_def(TensorType)

    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
    traits = traits_def(Pure())
    assembly_format = (
        "$x (`weight` `(` $weight^ `:` type($weight) `)`)? "
        "(`bias` `(` $bias^ `:` type($bias) `)`)? attr-dict `:` "
        "`(` type($x) `)` `->` type($result)"
    )

    def __init__(
        self,
        x: SSAValue,
        weight: SSAValue | None = None,
        bias: SSAValue | None = None,
        *,
        epsilon: float,
    ) -> None:
        super().__init__(
            operands=[x, weight, bias],
            properties={"epsilon": number(epsilon)},
            result_types=[tensor_of(element_of(x), shape_of(x))],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        x = shape_of(self.x)
        for side in (self.weight, self.bias):
            fits = side is None or all_agree(shape_of(side), x[-1:])
            check(self, 1, fits, "weight and bias must be [D]")
        check(self, 2, self.epsilon.value.data >= 0, "epsilon must not be negative")
        fits = all_agree(shape_of(self.result), x) and is_float(element_of(self.x))
        check(self, 3, fits, "the result must have the floating-point type of x")


@irdl_op_definition
class RmsNormOp(IRDLOperation):
    """Bring each row to unit root mean square: x [..., D], weight [D] -> [..., D].

    y = x / sqrt(mean(x^2) + epsilon) * weight over the last axis (Zhang & Sennrich 2019).

    C1  weight is [D].
    C2  epsilon is not negative; it is added to the mean square.
    C3  the result has the type of x, which is floating point.
    """

    name = "mllm.rms_norm"

    x = operand_def(TensorType)
    weight = operand_def(TensorType)
    epsilon = prop_def(FloatAttr)
    result = result_def(TensorType)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "$x `,` $weight attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue, weight: SSAValue, *, epsilon: float) -> None:
        super().__init__(
            operands=[x, weight],
            properties={"epsilon": number(epsilon)},
            result_types=[tensor_of(element_of(x), shape_of(x))],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        x = shape_of(self.x)
        check(self, 1, all_agree(shape_of(self.weight), x[-1:]), "weight must be [D]")
        check(self, 2, self.epsilon.value.data >= 0, "epsilon must not be negative")
        fits = all_agree(shape_of(self.result), x) and is_float(element_of(self.x))
        check(self, 3, fits, "the result must have the floating-point type of x")


@irdl_op_definition
class SoftmaxOp(IRDLOperation):
    """Exponentials that sum to 1 along an axis: [...] -> [...].

    y = exp(x - max) / sum(exp(x - max)).

    C1  axis is one of x.
    C2  the result has the type of x, which is floating point.
    """

    name = "mllm.softmax"

    x = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    result = result_def(TensorType)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "$x attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue, axis: int) -> None:
        super().__init__(
            operands=[x],
            properties={"axis": integer(normal_axis(axis, rank_of(x)))},
            result_types=[tensor_of(element_of(x), shape_of(x))],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        axis = self.axis.value.data
        check(self, 1, 0 <= axis < rank_of(self.x), f"axis {axis} of rank {rank_of(self.x)}")
        fits = all_agree(shape_of(self.result), shape_of(self.x)) and is_float(element_of(self.x))
        check(self, 2, fits, "the result must have the floating-point type of x")


def _reduced(dims: Sequence[Dim], axes: Sequence[int], keepdims: bool) -> list[Dim]:
    if keepdims:
        return [Dim.const(1) if i in axes else d for i, d in enumerate(dims)]
    return [d for i, d in enumerate(dims) if i not in axes]


@irdl_op_definition
class ReduceOp(IRDLOperation):
    """Fold axes into one element each (ONNX Reduce*): x -> x's dims with the axes 1 or gone.

    C1  axes are distinct axes of x, ascending.
    C2  the result has the other dims of x, and 1 in place of the axes where keepdims.
    C3  the result has the element type of x.
    """

    name = "mllm.reduce"

    kind = prop_def(ReduceKindAttr)
    x = operand_def(TensorType)
    axes = prop_def(DenseArrayBase)
    keepdims = prop_def(BoolAttr)
    result = result_def(TensorType)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "$kind $x attr-dict `:` functional-type(operands, results)"

    def __init__(
        self, kind: ReduceKind, x: SSAValue, axes: Sequence[int], *, keepdims: bool
    ) -> None:
        normal = sorted({normal_axis(a, rank_of(x)) for a in axes})
        super().__init__(
            operands=[x],
            properties={
                "kind": ReduceKindAttr(kind),
                "axes": integers(normal),
                "keepdims": BoolAttr.from_bool(keepdims),
            },
            result_types=[tensor_of(element_of(x), _reduced(shape_of(x), normal, keepdims))],
        )

    @property
    def axis_list(self) -> tuple[int, ...]:
        """The axes as integers."""
        return int_list(self.axes)

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        axes, rank = self.axis_list, rank_of(self.x)
        ordered = list(axes) == sorted(set(axes)) and all(0 <= a < rank for a in axes)
        check(self, 1, ordered, f"axes {list(axes)} of a tensor of rank {rank}")
        dims = _reduced(shape_of(self.x), axes, bool(self.keepdims))
        check(self, 2, all_agree(shape_of(self.result), dims), "the result's dims")
        check(self, 3, element_of(self.result) == element_of(self.x), "the result's element type")
