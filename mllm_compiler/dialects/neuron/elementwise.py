"""Functions of elements, as operations of Neuron."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr, StringAttr, i1
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, prop_def

from mllm_compiler.dialects.mllm.contract import check
from mllm_compiler.dialects.neuron.base import BinaryOp, ConversionOp, Scalar, UnaryOp


@irdl_op_definition
class AbsOp(UnaryOp):
    """The magnitude, of each element: x -> y.

    C1  x and y have one shape and type.
    """

    name = "neuron.abs"
    CODE: ClassVar[int] = 38


@irdl_op_definition
class HardSwishOp(UnaryOp):
    """x relu6(x + 3) / 6, of each element: x -> y.

    C1  x and y have one shape and type.
    """

    name = "neuron.hard_swish"
    CODE: ClassVar[int] = 99


@irdl_op_definition
class LogisticOp(UnaryOp):
    """1 / (1 + e^-x), of each element: x -> y.

    C1  x and y have one shape and type.
    """

    name = "neuron.logistic"
    CODE: ClassVar[int] = 14


@irdl_op_definition
class ReluOp(UnaryOp):
    """The larger of x and 0, of each element: x -> y.

    C1  x and y have one shape and type.
    """

    name = "neuron.relu"
    CODE: ClassVar[int] = 19


@irdl_op_definition
class RsqrtOp(UnaryOp):
    """1 / the square root, of each element: x -> y.

    C1  x and y have one shape and type.
    """

    name = "neuron.rsqrt"
    CODE: ClassVar[int] = 83


@irdl_op_definition
class SqrtOp(UnaryOp):
    """The square root, of each element: x -> y.

    C1  x and y have one shape and type.
    """

    name = "neuron.sqrt"
    CODE: ClassVar[int] = 88


@irdl_op_definition
class TanhOp(UnaryOp):
    """The hyperbolic tangent, of each element: x -> y.

    C1  x and y have one shape and type.
    """

    name = "neuron.tanh"
    CODE: ClassVar[int] = 28


@irdl_op_definition
class GeluOp(UnaryOp):
    """x times the normal distribution function of x, by a hyperbolic tangent: x -> y.

    The plugin of LiteRT asks for the approximation whatever its file says.

    C1  x and y have one shape and type.
    C2  approximate is 1.
    """

    name = "neuron.gelu"
    CODE: ClassVar[int] = 109
    SCALARS: ClassVar[Mapping[str, Scalar]] = {"approximate": Scalar.UINT32}
    approximate = prop_def(IntegerAttr)

    def check_contract(self) -> None:
        """C1 and C2."""
        super().check_contract()
        check(self, 2, self.approximate.value.data == 1, "approximate is 1")


@irdl_op_definition
class CastOp(ConversionOp):
    """Elements in another type: x -> y.

    C1  x and y have one shape.
    """

    name = "neuron.cast"
    CODE: ClassVar[int] = 45


@irdl_op_definition
class AddOp(BinaryOp):
    """a + b: a, b -> y.

    C1  y is the broadcast of a and b.
    C2  a, b and y have one element type.
    """

    name = "neuron.add"
    CODE: ClassVar[int] = 0
    SCALARS: ClassVar[Mapping[str, Scalar]] = {"fuse": Scalar.INT32}
    fuse = prop_def(StringAttr)


@irdl_op_definition
class DivOp(BinaryOp):
    """a / b: a, b -> y.

    C1  y is the broadcast of a and b.
    C2  a, b and y have one element type.
    """

    name = "neuron.div"
    CODE: ClassVar[int] = 30
    SCALARS: ClassVar[Mapping[str, Scalar]] = {"fuse": Scalar.INT32}
    fuse = prop_def(StringAttr)


@irdl_op_definition
class MulOp(BinaryOp):
    """a b: a, b -> y.

    C1  y is the broadcast of a and b.
    C2  a, b and y have one element type.
    """

    name = "neuron.mul"
    CODE: ClassVar[int] = 18
    SCALARS: ClassVar[Mapping[str, Scalar]] = {"fuse": Scalar.INT32}
    fuse = prop_def(StringAttr)


@irdl_op_definition
class SubOp(BinaryOp):
    """a - b: a, b -> y.

    C1  y is the broadcast of a and b.
    C2  a, b and y have one element type.
    """

    name = "neuron.sub"
    CODE: ClassVar[int] = 36
    SCALARS: ClassVar[Mapping[str, Scalar]] = {"fuse": Scalar.INT32}
    fuse = prop_def(StringAttr)


@irdl_op_definition
class MaximumOp(BinaryOp):
    """The larger: a, b -> y.

    C1  y is the broadcast of a and b.
    C2  a, b and y have one element type.
    """

    name = "neuron.maximum"
    CODE: ClassVar[int] = 65


@irdl_op_definition
class MinimumOp(BinaryOp):
    """The smaller: a, b -> y.

    C1  y is the broadcast of a and b.
    C2  a, b and y have one element type.
    """

    name = "neuron.minimum"
    CODE: ClassVar[int] = 66


@irdl_op_definition
class SquaredDifferenceOp(BinaryOp):
    """(a - b)^2, an operation of MediaTek's own: a, b -> y.

    C1  y is the broadcast of a and b.
    C2  a, b and y have one element type.
    """

    name = "neuron.squared_difference"
    EXTENSION: ClassVar[str] = "MTKEXT_SQUARED_DIFFERENCE"


@irdl_op_definition
class GreaterOp(BinaryOp):
    """a > b: a, b -> y.

    C1  y is the broadcast of a and b.
    C2  a and b have one element type, y is i1.
    """

    name = "neuron.greater"
    CODE: ClassVar[int] = 53

    def result_element(self) -> Attribute:
        """Booleans."""
        return i1


@irdl_op_definition
class LessOp(BinaryOp):
    """a < b: a, b -> y.

    C1  y is the broadcast of a and b.
    C2  a and b have one element type, y is i1.
    """

    name = "neuron.less"
    CODE: ClassVar[int] = 58

    def result_element(self) -> Attribute:
        """Booleans."""
        return i1
