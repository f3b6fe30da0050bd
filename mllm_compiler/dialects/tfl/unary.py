"""Functions of each element, as operators of TFLite."""

from __future__ import annotations

from abc import ABC

from xdsl.dialects.builtin import BoolAttr, TensorType
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def

from mllm_compiler.dialects.mllm.contract import all_agree, check
from mllm_compiler.dialects.tfl.base import TflOp, same_elements
from mllm_compiler.dialects.types import shape_of


class UnaryOp(TflOp, ABC):
    """Base of functions of each element: x -> y."""

    x = operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        check(self, 1, all_agree(shape_of(self.x), shape_of(self.y)), "one shape")
        check(self, 2, same_elements([self.x, self.y]), "one element type")


@irdl_op_definition
class AbsOp(UnaryOp):
    """|x|: x -> y.

    C1  y has the shape of x.
    C2  x and y have one element type.
    """

    name = "tfl.abs"


@irdl_op_definition
class CeilOp(UnaryOp):
    """The least whole number that is not below x: x -> y.

    C1  y has the shape of x.
    C2  x and y have one element type.
    """

    name = "tfl.ceil"


@irdl_op_definition
class CosOp(UnaryOp):
    """cos x: x -> y.

    C1  y has the shape of x.
    C2  x and y have one element type.
    """

    name = "tfl.cos"


@irdl_op_definition
class ExpOp(UnaryOp):
    """e^x: x -> y.

    C1  y has the shape of x.
    C2  x and y have one element type.
    """

    name = "tfl.exp"


@irdl_op_definition
class FloorOp(UnaryOp):
    """The largest whole number that is not above x: x -> y.

    C1  y has the shape of x.
    C2  x and y have one element type.
    """

    name = "tfl.floor"


@irdl_op_definition
class HardSwishOp(UnaryOp):
    """x min(6, max(0, x + 3)) / 6: x -> y.

    C1  y has the shape of x.
    C2  x and y have one element type.
    """

    name = "tfl.hard_swish"


@irdl_op_definition
class LogOp(UnaryOp):
    """The natural logarithm: x -> y.

    C1  y has the shape of x.
    C2  x and y have one element type.
    """

    name = "tfl.log"


@irdl_op_definition
class LogicalNotOp(UnaryOp):
    """Not, of booleans: x -> y.

    C1  y has the shape of x.
    C2  x and y have one element type.
    """

    name = "tfl.logical_not"


@irdl_op_definition
class LogisticOp(UnaryOp):
    """1 / (1 + e^-x): x -> y.

    C1  y has the shape of x.
    C2  x and y have one element type.
    """

    name = "tfl.logistic"


@irdl_op_definition
class NegOp(UnaryOp):
    """-x: x -> y.

    C1  y has the shape of x.
    C2  x and y have one element type.
    """

    name = "tfl.neg"


@irdl_op_definition
class ReluOp(UnaryOp):
    """max(0, x): x -> y.

    C1  y has the shape of x.
    C2  x and y have one element type.
    """

    name = "tfl.relu"


@irdl_op_definition
class RoundOp(UnaryOp):
    """The nearest whole number, half to even: x -> y.

    C1  y has the shape of x.
    C2  x and y have one element type.
    """

    name = "tfl.round"


@irdl_op_definition
class RsqrtOp(UnaryOp):
    """1 / sqrt x: x -> y.

    C1  y has the shape of x.
    C2  x and y have one element type.
    """

    name = "tfl.rsqrt"


@irdl_op_definition
class SignOp(UnaryOp):
    """-1, 0 or 1: x -> y.

    C1  y has the shape of x.
    C2  x and y have one element type.
    """

    name = "tfl.sign"


@irdl_op_definition
class SinOp(UnaryOp):
    """sin x: x -> y.

    C1  y has the shape of x.
    C2  x and y have one element type.
    """

    name = "tfl.sin"


@irdl_op_definition
class SqrtOp(UnaryOp):
    """The square root: x -> y.

    C1  y has the shape of x.
    C2  x and y have one element type.
    """

    name = "tfl.sqrt"


@irdl_op_definition
class TanhOp(UnaryOp):
    """tanh x: x -> y.

    C1  y has the shape of x.
    C2  x and y have one element type.
    """

    name = "tfl.tanh"


@irdl_op_definition
class GeluOp(UnaryOp):
    """x/2 (1 + erf(x / sqrt 2)), or its tanh form: x -> y.

    C1  y has the shape of x.
    C2  x and y have one element type.
    """

    name = "tfl.gelu"
    x = operand_def(TensorType)
    approximate = prop_def(BoolAttr)
    y = result_def(TensorType)


@irdl_op_definition
class CastOp(TflOp):
    """Each element in another type: x -> y; towards zero from reals to whole numbers.

    C1  y has the shape of x.
    """

    name = "tfl.cast"
    x = operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        check(self, 1, all_agree(shape_of(self.x), shape_of(self.y)), "one shape")
