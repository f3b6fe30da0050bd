"""Functions of pairs of elements, as operators of QNN."""

from __future__ import annotations

from abc import ABC

from xdsl.dialects.builtin import TensorType
from xdsl.irdl import irdl_op_definition, operand_def, result_def

from mllm_compiler.dialects.mllm.contract import check_broadcast
from mllm_compiler.dialects.qnn.base import QnnOp


class BinaryOp(QnnOp, ABC):
    """Base of functions of pairs of elements: a, b -> their NumPy broadcast."""

    a = operand_def(TensorType)
    b = operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        check_broadcast(self, 1)


@irdl_op_definition
class ElementWiseAddOp(BinaryOp):
    """a + b: a, b -> y.

    C1  y is the broadcast of a and b.
    """

    name = "qnn.element_wise_add"


@irdl_op_definition
class ElementWiseSubtractOp(BinaryOp):
    """a - b: a, b -> y.

    C1  y is the broadcast of a and b.
    """

    name = "qnn.element_wise_subtract"


@irdl_op_definition
class ElementWiseMultiplyOp(BinaryOp):
    """a b: a, b -> y.

    C1  y is the broadcast of a and b.
    """

    name = "qnn.element_wise_multiply"


@irdl_op_definition
class ElementWiseDivideOp(BinaryOp):
    """a / b: a, b -> y.

    C1  y is the broadcast of a and b.
    """

    name = "qnn.element_wise_divide"


@irdl_op_definition
class ElementWiseMaximumOp(BinaryOp):
    """The larger: a, b -> y.

    C1  y is the broadcast of a and b.
    """

    name = "qnn.element_wise_maximum"


@irdl_op_definition
class ElementWiseMinimumOp(BinaryOp):
    """The smaller: a, b -> y.

    C1  y is the broadcast of a and b.
    """

    name = "qnn.element_wise_minimum"


@irdl_op_definition
class ElementWisePowerOp(BinaryOp):
    """a to the power of b: a, b -> y.

    C1  y is the broadcast of a and b.
    """

    name = "qnn.element_wise_power"


@irdl_op_definition
class ElementWiseAndOp(BinaryOp):
    """And, of booleans: a, b -> y.

    C1  y is the broadcast of a and b.
    """

    name = "qnn.element_wise_and"


@irdl_op_definition
class ElementWiseOrOp(BinaryOp):
    """Or, of booleans: a, b -> y.

    C1  y is the broadcast of a and b.
    """

    name = "qnn.element_wise_or"


@irdl_op_definition
class ElementWiseEqualOp(BinaryOp):
    """Whether a and b are equal: a, b -> y, i1.

    C1  y is the broadcast of a and b.
    """

    name = "qnn.element_wise_equal"


@irdl_op_definition
class ElementWiseNotEqualOp(BinaryOp):
    """Whether a and b differ: a, b -> y, i1.

    C1  y is the broadcast of a and b.
    """

    name = "qnn.element_wise_not_equal"


@irdl_op_definition
class ElementWiseLessOp(BinaryOp):
    """a < b: a, b -> y, i1.

    C1  y is the broadcast of a and b.
    """

    name = "qnn.element_wise_less"


@irdl_op_definition
class ElementWiseLessEqualOp(BinaryOp):
    """a <= b: a, b -> y, i1.

    C1  y is the broadcast of a and b.
    """

    name = "qnn.element_wise_less_equal"


@irdl_op_definition
class ElementWiseGreaterOp(BinaryOp):
    """a > b: a, b -> y, i1.

    C1  y is the broadcast of a and b.
    """

    name = "qnn.element_wise_greater"


@irdl_op_definition
class ElementWiseGreaterEqualOp(BinaryOp):
    """a >= b: a, b -> y, i1.

    C1  y is the broadcast of a and b.
    """

    name = "qnn.element_wise_greater_equal"


@irdl_op_definition
class ElementWiseSelectOp(QnnOp):
    """a where c is true, else b: c, a, b -> y.

    C1  y is the broadcast of c, a and b.
    """

    name = "qnn.element_wise_select"
    c = operand_def(TensorType)
    a = operand_def(TensorType)
    b = operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        check_broadcast(self, 1)
