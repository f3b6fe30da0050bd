"""Products and normalisations of TFLite."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar

from xdsl.dialects.builtin import BoolAttr, FloatAttr, StringAttr, TensorType
from xdsl.irdl import (
    AttrSizedOperandSegments,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
    result_def,
)

from mllm_compiler.dialects.mllm.contract import all_agree, broadcast_dims, check
from mllm_compiler.dialects.tfl.base import FUSED, TflOp, listed
from mllm_compiler.dialects.types import element_of, extents, shape_of

FALSE = BoolAttr.from_bool(False)


@irdl_op_definition
class FullyConnectedOp(TflOp):
    """x [..., K] times the rows of weights [N, K], and bias [N]? -> y [..., N].

    Of weights with scales (`tfl.pseudo_qconst`) and real x, rows of x are quantised as it runs
    ("hybrid"): XNNPACK does so with a zero point for each row.

    C1  weights is [N, K].
    C2  bias is [N].
    C3  y is [..., N], or [rows, N] without keep_num_dims.
    """

    name = "tfl.fully_connected"
    ENUMS: ClassVar[dict[str, tuple[str, ...]]] = FUSED
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    x = operand_def(TensorType)
    weights = operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    fused_activation_function = prop_def(StringAttr, default_value=StringAttr("NONE"))
    keep_num_dims = prop_def(BoolAttr, default_value=BoolAttr.from_bool(True))
    asymmetric_quantize_inputs = prop_def(BoolAttr, default_value=FALSE)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 to C3."""
        x, weights = extents(self.x), extents(self.weights)
        check(self, 1, len(weights) == 2 and weights[1] == x[-1], "weights is [N, K]")
        check(self, 2, self.bias is None or extents(self.bias) == weights[:1], "bias is [N]")
        y, kept = extents(self.y), (*x[:-1], weights[0])
        fits = y == kept if self.keep_num_dims else len(y) == 2 and y[1] == kept[-1]
        check(self, 3, fits, "y is [..., N]")


@irdl_op_definition
class BatchMatmulOp(TflOp):
    """a [..., M, K] times b [..., K, N] -> y [..., M, N]; adj_x and adj_y turn a matrix.

    C1  the matrices fit, and what goes before them broadcasts.
    """

    name = "tfl.batch_matmul"
    a = operand_def(TensorType)
    b = operand_def(TensorType)
    adj_x = prop_def(BoolAttr, default_value=FALSE)
    adj_y = prop_def(BoolAttr, default_value=FALSE)
    asymmetric_quantize_inputs = prop_def(BoolAttr, default_value=FALSE)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        a, b = extents(self.a), extents(self.b)
        (m, k) = reversed(a[-2:]) if self.adj_x else a[-2:]
        (depth, n) = reversed(b[-2:]) if self.adj_y else b[-2:]
        dims = broadcast_dims(shape_of(self.a)[:-2], shape_of(self.b)[:-2])
        fits = k == depth and dims is not None
        fits = fits and all_agree(shape_of(self.y), (*(dims or ()), m, n))
        check(self, 1, fits, "y is [..., M, N]")


@irdl_op_definition
class SoftmaxOp(TflOp):
    """e^(beta x), along the last axis as a part of its sum: x -> y.

    C1  x and y have one shape and type.
    """

    name = "tfl.softmax"
    x = operand_def(TensorType)
    beta = prop_def(FloatAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        check(self, 1, self.x.type == self.y.type, "x and y have one shape and type")


class ReducerOp(TflOp, ABC):
    """Base of the ops that make one element of those along some axes: x, axes -> y."""

    x = operand_def(TensorType)
    axes = operand_def(TensorType)
    keep_dims = prop_def(BoolAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        axes, x = listed(self.axes), extents(self.x)
        check(self, 1, axes is not None, "axes is a constant")
        dropped = {a % len(x) for a in axes or ()}
        kept = [1 if i in dropped else n for i, n in enumerate(x)]
        if not self.keep_dims:
            kept = [n for i, n in enumerate(x) if i not in dropped]
        fits = list(extents(self.y)) == kept and element_of(self.x) == element_of(self.y)
        check(self, 2, fits, "y lacks the axes, or has 1 there")


@irdl_op_definition
class MeanOp(ReducerOp):
    """The mean along some axes: x, axes -> y.

    C1  axes is a constant.
    C2  y lacks the axes, or has 1 there with keep_dims.
    """

    name = "tfl.mean"


@irdl_op_definition
class CumsumOp(TflOp):
    """The sum of all elements up to each along an axis: x, axis -> y.

    Exclusive leaves the element itself out; reverse sums from the end.

    C1  axis is a constant, one of x.
    C2  y has the type of x.
    """

    name = "tfl.cumsum"
    x = operand_def(TensorType)
    axis = operand_def(TensorType)
    exclusive = prop_def(BoolAttr, default_value=FALSE)
    reverse = prop_def(BoolAttr, default_value=FALSE)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        axis = listed(self.axis)
        known = axis is not None and len(axis) == 1 and 0 <= axis[0] < len(extents(self.x))
        check(self, 1, known, "axis is a constant, one of x")
        check(self, 2, self.x.type == self.y.type, "y has the type of x")


@irdl_op_definition
class SumOp(ReducerOp):
    """The sum along some axes: x, axes -> y.

    C1  axes is a constant.
    C2  y lacks the axes, or has 1 there with keep_dims.
    """

    name = "tfl.sum"


@irdl_op_definition
class ReduceMaxOp(ReducerOp):
    """The largest along some axes: x, axes -> y.

    C1  axes is a constant.
    C2  y lacks the axes, or has 1 there with keep_dims.
    """

    name = "tfl.reduce_max"


@irdl_op_definition
class ReduceMinOp(ReducerOp):
    """The least along some axes: x, axes -> y.

    C1  axes is a constant.
    C2  y lacks the axes, or has 1 there with keep_dims.
    """

    name = "tfl.reduce_min"


@irdl_op_definition
class ReduceProdOp(ReducerOp):
    """The product along some axes: x, axes -> y.

    C1  axes is a constant.
    C2  y lacks the axes, or has 1 there with keep_dims.
    """

    name = "tfl.reduce_prod"
