"""Elementwise ops of the `mllm` dialect."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import TensorType, i1
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure

from mllm_compiler.dialects.dims import tensor_of
from mllm_compiler.dialects.mllm.contract import all_agree, broadcast_dims, check, check_broadcast
from mllm_compiler.dialects.mllm.kinds import (
    BinaryKind,
    BinaryKindAttr,
    CompareKind,
    CompareKindAttr,
    UnaryKind,
    UnaryKindAttr,
)
from mllm_compiler.dialects.types import element_of, is_float, shape_of, tensor_type

INTEGER_UNARY = frozenset(
    {UnaryKind.NEG, UnaryKind.ABS, UnaryKind.SIGN, UnaryKind.RELU, UnaryKind.NOT}
)
"""Unary kinds that integers have too (`not` has booleans and integers only)."""

TESTS = frozenset({UnaryKind.ISNAN, UnaryKind.ISINF})
"""Unary kinds that answer with a boolean."""

LOGICAL = frozenset({BinaryKind.AND, BinaryKind.OR, BinaryKind.XOR})
"""Binary kinds of booleans and integers: bitwise, which on booleans is logical."""


def _broadcast(element: Attribute, operands: Sequence[SSAValue]) -> Attribute:
    dims = broadcast_dims(*(shape_of(v) for v in operands))
    if dims is None:
        kinds = " and ".join(str(v.type) for v in operands)
        raise ValueError(f"{kinds} do not broadcast")
    return tensor_of(element, dims)


@irdl_op_definition
class UnaryOp(IRDLOperation):
    """Apply one function to each element: [...] -> [...].

    `gelu` is x/2 (1 + erf(x/sqrt 2)), `gelu_tanh` its tanh form (Hendrycks & Gimpel 2016), `silu`
    x sigmoid(x), `round` half to even, `hard_sigmoid` max(0, min(1, x/6 + 1/2)), `hard_swish`
    x hard_sigmoid(x), `mish` x tanh(softplus(x)).

    C1  the result has the shape of x.
    C2  x is floating point; neg, abs, sign and relu take integers too, `not` booleans or integers.
    C3  the result has the element type of x; of isnan and isinf it is i1.
    """

    name = "mllm.unary"

    kind = prop_def(UnaryKindAttr)
    x = operand_def(TensorType)
    result = result_def(TensorType)

    traits = traits_def(Pure())
    assembly_format = "$kind $x attr-dict `:` functional-type(operands, results)"

    def __init__(self, kind: UnaryKind, x: SSAValue) -> None:
        element = i1 if kind in TESTS else element_of(x)
        super().__init__(
            operands=[x],
            properties={"kind": UnaryKindAttr(kind)},
            result_types=[tensor_of(element, shape_of(x))],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        kind, element = self.kind.data, element_of(self.x)
        check(self, 1, all_agree(shape_of(self.x), shape_of(self.result)), "one shape")
        accepted = kind in INTEGER_UNARY or is_float(element)
        accepted &= kind != UnaryKind.NOT or not is_float(element)
        check(self, 2, accepted, f"{kind} does not take {element}")
        expected = i1 if kind in TESTS else element
        check(self, 3, element_of(self.result) == expected, f"the result must be {expected}")


@irdl_op_definition
class BinaryOp(IRDLOperation):
    """Apply one function to pairs of elements: a, b -> their NumPy broadcast.

    `div` of integers truncates towards zero, `mod` has the sign of b on integers and that of a on
    floating point (C's fmod), `pow` is a to the power of b.

    C1  a, b and the result have one element type.
    C2  the result has the broadcast shape of a and b.
    C3  and, or and xor take booleans or integers.
    """

    name = "mllm.binary"

    kind = prop_def(BinaryKindAttr)
    a = operand_def(TensorType)
    b = operand_def(TensorType)
    result = result_def(TensorType)

    traits = traits_def(Pure())
    assembly_format = "$kind $a `,` $b attr-dict `:` functional-type(operands, results)"

    def __init__(self, kind: BinaryKind, a: SSAValue, b: SSAValue) -> None:
        super().__init__(
            operands=[a, b],
            properties={"kind": BinaryKindAttr(kind)},
            result_types=[_broadcast(element_of(a), [a, b])],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        element = element_of(self.a)
        same = element == element_of(self.b) == element_of(self.result)
        check(self, 1, same, "one element type")
        check_broadcast(self, 2)
        logical = self.kind.data not in LOGICAL or not is_float(element)
        check(self, 3, logical, f"{self.kind.data} does not take {element}")


@irdl_op_definition
class CompareOp(IRDLOperation):
    """Compare pairs of elements: a, b -> i1 in their NumPy broadcast.

    C1  a and b have one element type and the result is i1.
    C2  the result has the broadcast shape of a and b.
    """

    name = "mllm.compare"

    kind = prop_def(CompareKindAttr)
    a = operand_def(TensorType)
    b = operand_def(TensorType)
    result = result_def(TensorType)

    traits = traits_def(Pure())
    assembly_format = "$kind $a `,` $b attr-dict `:` functional-type(operands, results)"

    def __init__(self, kind: CompareKind, a: SSAValue, b: SSAValue) -> None:
        super().__init__(
            operands=[a, b],
            properties={"kind": CompareKindAttr(kind)},
            result_types=[_broadcast(i1, [a, b])],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        same = element_of(self.a) == element_of(self.b) and element_of(self.result) == i1
        check(self, 1, same, "one element type in, i1 out")
        check_broadcast(self, 2)


@irdl_op_definition
class SelectOp(IRDLOperation):
    """Choose a where c is true, else b: c, a, b -> their NumPy broadcast.

    C1  c is i1; a, b and the result have one element type.
    C2  the result has the broadcast shape of c, a and b.
    """

    name = "mllm.select"

    c = operand_def(TensorType)
    a = operand_def(TensorType)
    b = operand_def(TensorType)
    result = result_def(TensorType)

    traits = traits_def(Pure())
    assembly_format = "$c `,` $a `,` $b attr-dict `:` functional-type(operands, results)"

    def __init__(self, c: SSAValue, a: SSAValue, b: SSAValue) -> None:
        super().__init__(operands=[c, a, b], result_types=[_broadcast(element_of(a), [c, a, b])])

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        same = element_of(self.a) == element_of(self.b) == element_of(self.result)
        check(self, 1, same and element_of(self.c) == i1, "i1, then one element type")
        check_broadcast(self, 2)


@irdl_op_definition
class CastOp(IRDLOperation):
    """Convert each element to another type: [...] -> [...] (ONNX Cast).

    Floating point becomes an integer by truncation towards zero and a boolean by comparison with
    zero; what does not fit is the platform's choice.

    C1  the result has the shape of x.
    """

    name = "mllm.cast"

    x = operand_def(TensorType)
    result = result_def(TensorType)

    traits = traits_def(Pure())
    assembly_format = "$x attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue, element: Attribute) -> None:
        super().__init__(operands=[x], result_types=[tensor_of(element, shape_of(x))])

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        same = all_agree(shape_of(self.x), shape_of(self.result))
        check(self, 1, same, f"{tensor_type(self.x)} and {self.result.type} differ in shape")
