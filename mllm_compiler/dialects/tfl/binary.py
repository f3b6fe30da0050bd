"""Functions of pairs of elements, as operators of TFLite."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar

from xdsl.dialects.builtin import StringAttr, TensorType, i1
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def

from mllm_compiler.dialects.mllm.contract import check, check_broadcast
from mllm_compiler.dialects.tfl.base import FUSED, TflOp, same_elements
from mllm_compiler.dialects.types import element_of


class BinaryOp(TflOp, ABC):
    """Base of functions of pairs of elements: a, b -> their NumPy broadcast."""

    a = operand_def(TensorType)
    b = operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        check_broadcast(self, 1)
        self.check_elements()

    def check_elements(self) -> None:
        """C2."""
        check(self, 2, same_elements([self.a, self.b, self.y]), "one element type")


class FusedBinaryOp(BinaryOp, ABC):
    """Base of those that may end with an activation."""

    ENUMS: ClassVar[dict[str, tuple[str, ...]]] = FUSED
    a = operand_def(TensorType)
    b = operand_def(TensorType)
    fused_activation_function = prop_def(StringAttr, default_value=StringAttr("NONE"))
    y = result_def(TensorType)


class CompareOp(BinaryOp, ABC):
    """Base of comparisons of pairs of elements: a, b -> i1."""

    def check_elements(self) -> None:
        """C2."""
        fits = same_elements([self.a, self.b]) and element_of(self.y) == i1
        check(self, 2, fits, "a and b have one element type, y is i1")


@irdl_op_definition
class AddOp(FusedBinaryOp):
    """a + b: a, b -> y.

    C1  y is the broadcast of a and b.
    C2  a, b and y have one element type.
    """

    name = "tfl.add"


@irdl_op_definition
class DivOp(FusedBinaryOp):
    """a / b: a, b -> y.

    C1  y is the broadcast of a and b.
    C2  a, b and y have one element type.
    """

    name = "tfl.div"


@irdl_op_definition
class MulOp(FusedBinaryOp):
    """a b: a, b -> y.

    C1  y is the broadcast of a and b.
    C2  a, b and y have one element type.
    """

    name = "tfl.mul"


@irdl_op_definition
class SubOp(FusedBinaryOp):
    """a - b: a, b -> y.

    C1  y is the broadcast of a and b.
    C2  a, b and y have one element type.
    """

    name = "tfl.sub"


@irdl_op_definition
class FloorModOp(BinaryOp):
    """The remainder that has the sign of b: a, b -> y.

    C1  y is the broadcast of a and b.
    C2  a, b and y have one element type.
    """

    name = "tfl.floor_mod"


@irdl_op_definition
class LogicalAndOp(BinaryOp):
    """And, of booleans: a, b -> y.

    C1  y is the broadcast of a and b.
    C2  a, b and y have one element type.
    """

    name = "tfl.logical_and"


@irdl_op_definition
class LogicalOrOp(BinaryOp):
    """Or, of booleans: a, b -> y.

    C1  y is the broadcast of a and b.
    C2  a, b and y have one element type.
    """

    name = "tfl.logical_or"


@irdl_op_definition
class MaximumOp(BinaryOp):
    """The larger: a, b -> y.

    C1  y is the broadcast of a and b.
    C2  a, b and y have one element type.
    """

    name = "tfl.maximum"


@irdl_op_definition
class MinimumOp(BinaryOp):
    """The smaller: a, b -> y.

    C1  y is the broadcast of a and b.
    C2  a, b and y have one element type.
    """

    name = "tfl.minimum"


@irdl_op_definition
class PowOp(BinaryOp):
    """a to the power of b: a, b -> y.

    C1  y is the broadcast of a and b.
    C2  a, b and y have one element type.
    """

    name = "tfl.pow"


@irdl_op_definition
class SquaredDifferenceOp(BinaryOp):
    """(a - b)^2: a, b -> y.

    C1  y is the broadcast of a and b.
    C2  a, b and y have one element type.
    """

    name = "tfl.squared_difference"


@irdl_op_definition
class EqualOp(CompareOp):
    """a = b: a, b -> y.

    C1  y is the broadcast of a and b.
    C2  a and b have one element type, y is i1.
    """

    name = "tfl.equal"


@irdl_op_definition
class NotEqualOp(CompareOp):
    """Whether a and b differ: a, b -> y.

    C1  y is the broadcast of a and b.
    C2  a and b have one element type, y is i1.
    """

    name = "tfl.not_equal"


@irdl_op_definition
class LessOp(CompareOp):
    """a < b: a, b -> y.

    C1  y is the broadcast of a and b.
    C2  a and b have one element type, y is i1.
    """

    name = "tfl.less"


@irdl_op_definition
class LessEqualOp(CompareOp):
    """a <= b: a, b -> y.

    C1  y is the broadcast of a and b.
    C2  a and b have one element type, y is i1.
    """

    name = "tfl.less_equal"


@irdl_op_definition
class GreaterOp(CompareOp):
    """a > b: a, b -> y.

    C1  y is the broadcast of a and b.
    C2  a and b have one element type, y is i1.
    """

    name = "tfl.greater"


@irdl_op_definition
class GreaterEqualOp(CompareOp):
    """a >= b: a, b -> y.

    C1  y is the broadcast of a and b.
    C2  a and b have one element type, y is i1.
    """

    name = "tfl.greater_equal"


@irdl_op_definition
class SelectV2Op(TflOp):
    """a where c is true, else b: c, a, b -> their NumPy broadcast.

    C1  y is the broadcast of c, a and b.
    C2  c is i1; a, b and y have one element type.
    """

    name = "tfl.select_v2"
    c = operand_def(TensorType)
    a = operand_def(TensorType)
    b = operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        check_broadcast(self, 1)
        fits = element_of(self.c) == i1 and same_elements([self.a, self.b, self.y])
        check(self, 2, fits, "c is i1; a, b and y have one element type")
