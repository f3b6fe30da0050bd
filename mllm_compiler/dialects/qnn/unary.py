"""Functions of each element, as operators of QNN."""

from __future__ import annotations

from abc import ABC

from xdsl.dialects.builtin import TensorType, f32
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, result_def

from mllm_compiler.dialects.mllm.contract import check
from mllm_compiler.dialects.qnn.base import QnnOp
from mllm_compiler.dialects.qnn.linalg import MatMulOp
from mllm_compiler.dialects.qnn.shape import ReshapeOp
from mllm_compiler.dialects.types import bits_of, element_of, extents


class UnaryOp(QnnOp, ABC):
    """Base of functions of each element: x -> y."""

    x = operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        check(self, 1, extents(self.x) == extents(self.y), "y has the shape of x")


@irdl_op_definition
class ElementWiseAbsOp(UnaryOp):
    """|x|: x -> y.

    C1  y has the shape of x.
    """

    name = "qnn.element_wise_abs"


@irdl_op_definition
class ElementWiseCeilOp(UnaryOp):
    """The least whole number that is not below x: x -> y.

    C1  y has the shape of x.
    """

    name = "qnn.element_wise_ceil"


@irdl_op_definition
class ElementWiseCosOp(UnaryOp):
    """cos x: x -> y.

    C1  y has the shape of x.
    """

    name = "qnn.element_wise_cos"


@irdl_op_definition
class ElementWiseExpOp(UnaryOp):
    """e^x: x -> y.

    C1  y has the shape of x.
    """

    name = "qnn.element_wise_exp"


@irdl_op_definition
class ElementWiseFloorOp(UnaryOp):
    """The largest whole number that is not above x: x -> y.

    C1  y has the shape of x.
    """

    name = "qnn.element_wise_floor"


@irdl_op_definition
class ElementWiseLogOp(UnaryOp):
    """The natural logarithm: x -> y.

    C1  y has the shape of x.
    """

    name = "qnn.element_wise_log"


@irdl_op_definition
class ElementWiseNegOp(UnaryOp):
    """-x: x -> y.

    C1  y has the shape of x.
    """

    name = "qnn.element_wise_neg"


@irdl_op_definition
class ElementWiseNotOp(UnaryOp):
    """Not, of booleans: x -> y.

    C1  y has the shape of x.
    """

    name = "qnn.element_wise_not"


@irdl_op_definition
class ElementWiseRoundOp(UnaryOp):
    """The nearest whole number, of two the even one: x -> y.

    C1  y has the shape of x.
    """

    name = "qnn.element_wise_round"


@irdl_op_definition
class ElementWiseRsqrtOp(UnaryOp):
    """1 / sqrt x: x -> y.

    C1  y has the shape of x.
    """

    name = "qnn.element_wise_rsqrt"


@irdl_op_definition
class ElementWiseSignOp(UnaryOp):
    """-1, 0 or 1: x -> y.

    C1  y has the shape of x.
    """

    name = "qnn.element_wise_sign"


@irdl_op_definition
class ElementWiseSinOp(UnaryOp):
    """sin x: x -> y.

    C1  y has the shape of x.
    """

    name = "qnn.element_wise_sin"


@irdl_op_definition
class ElementWiseSquareRootOp(UnaryOp):
    """sqrt x: x -> y.

    C1  y has the shape of x.
    """

    name = "qnn.element_wise_square_root"


@irdl_op_definition
class GeluOp(UnaryOp):
    """x/2 (1 + erf(x / sqrt 2)): x -> y.

    C1  y has the shape of x.
    """

    name = "qnn.gelu"


@irdl_op_definition
class HardSwishOp(UnaryOp):
    """x min(6, max(0, x + 3)) / 6: x -> y.

    C1  y has the shape of x.
    """

    name = "qnn.hard_swish"


@irdl_op_definition
class ReluOp(UnaryOp):
    """max(0, x): x -> y.

    C1  y has the shape of x.
    """

    name = "qnn.relu"


@irdl_op_definition
class SigmoidOp(UnaryOp):
    """1 / (1 + e^-x): x -> y.

    C1  y has the shape of x.
    """

    name = "qnn.sigmoid"


@irdl_op_definition
class TanhOp(UnaryOp):
    """tanh x: x -> y.

    C1  y has the shape of x.
    """

    name = "qnn.tanh"


@irdl_op_definition
class CastOp(UnaryOp):
    """Each element in another type, towards zero to whole numbers: x -> y.

    C1  y has the shape of x.
    """

    name = "qnn.cast"


@irdl_op_definition
class QuantizeOp(UnaryOp):
    """The codes of reals, rounded and saturated: x -> y.

    C1  y has the shape of x.
    """

    name = "qnn.quantize"


@irdl_op_definition
class DequantizeOp(UnaryOp):
    """What codes mean: x -> y.

    C1  y has the shape of x.
    C2  what a product of matrices of 8 bits gives becomes halves: HTP takes f32, and gives
        something else for large ones.
    """

    name = "qnn.dequantize"

    def check_contract(self) -> None:
        """C1 and C2."""
        super().check_contract()
        kept = element_of(self.y) != f32 or not is_product_of_bytes(self.x)
        check(self, 2, kept, "what a product of matrices of 8 bits gives becomes halves")


def is_product_of_bytes(value: SSAValue) -> bool:
    """Whether codes of 8 bits are a product of matrices, reshaped or not."""
    while isinstance(value.owner, ReshapeOp):
        value = value.owner.x
    return isinstance(value.owner, MatMulOp) and bits_of(element_of(value)) == 8


@irdl_op_definition
class ConvertOp(UnaryOp):
    """Codes in another encoding: x -> y.

    C1  y has the shape of x.
    """

    name = "qnn.convert"
