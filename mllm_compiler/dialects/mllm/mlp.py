"""Feed-forward blocks of the `mllm` dialect."""

from __future__ import annotations

from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure

from mllm_compiler.dialects.dims import tensor_of
from mllm_compiler.dialects.mllm.contract import all_agree, check
from mllm_compiler.dialects.mllm.kinds import Activation, ActivationAttr
from mllm_compiler.dialects.types import element_of, is_float, shape_of


@irdl_op_definition
class GatedMlpOp(IRDLOperation):
    """Gated feed-forward block: x [..., D], gate [F, D], up [F, D], down [E, F] -> [..., E].

    y = (activation(x gate^T) * (x up^T)) down^T (Shazeer 2020); silu makes it SwiGLU, gelu GeGLU.

    C1  gate and up are [F, D] where x is [..., D].
    C2  down is [E, F].
    C3  the result is [..., E].
    C4  all have one floating-point type.
    """

    name = "mllm.gated_mlp"

    activation = prop_def(ActivationAttr)
    x = operand_def(TensorType)
    gate = operand_def(TensorType)
    up = operand_def(TensorType)
    down = operand_def(TensorType)
    result = result_def(TensorType)

    traits = traits_def(Pure())
    assembly_format = (
        "$activation $x `,` $gate `,` $up `,` $down attr-dict `:` "
        "functional-type(operands, results)"
    )

    def __init__(
        self, activation: Activation, x: SSAValue, gate: SSAValue, up: SSAValue, down: SSAValue
    ) -> None:
        dims = (*shape_of(x)[:-1], shape_of(down)[0])
        super().__init__(
            operands=[x, gate, up, down],
            properties={"activation": ActivationAttr(activation)},
            result_types=[tensor_of(element_of(x), dims)],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        x, gate, down = shape_of(self.x), shape_of(self.gate), shape_of(self.down)
        fits = len(gate) == 2 and all_agree(gate, shape_of(self.up)) and all_agree(gate[1:], x[-1:])
        check(self, 1, fits, "gate and up must be [F, D] where x is [..., D]")
        fits = len(down) == 2 and all_agree(down[1:], gate[:1])
        check(self, 2, fits, "down must be [E, F]")
        fits = all_agree(shape_of(self.result), (*x[:-1], down[0]))
        check(self, 3, fits, "the result must be [..., E]")
        elements = {element_of(v) for v in (*self.operands, self.result)}
        check(self, 4, len(elements) == 1 and is_float(element_of(self.x)), "one float type")


@irdl_op_definition
class MlpOp(IRDLOperation):
    """Feed-forward block: x [..., D], w1 [F, D], b1? [F], w2 [E, F], b2? [E] -> [..., E].

    y = activation(x w1^T + b1) w2^T + b2.

    C1  w1 is [F, D] where x is [..., D], and b1 is [F].
    C2  w2 is [E, F] and b2 is [E].
    C3  the result is [..., E].
    C4  all have one floating-point type.
    """

    name = "mllm.mlp"

    activation = prop_def(ActivationAttr)
    x = operand_def(TensorType)
    w1 = operand_def(TensorType)
    w2 = operand_def(TensorType)
    b1 = opt_operand_def(TensorType)
    b2 = opt_operand_def(TensorType)
    result = result_def(TensorType)

    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(Pure())
    assembly_format = (
        "$activation $x `,` $w1 `,` $w2 (`b1` `(` $b1^ `:` type($b1) `)`)? "
        "(`b2` `(` $b2^ `:` type($b2) `)`)? attr-dict `:` "
        "`(` type($x) `,` type($w1) `,` type($w2) `)` `->` type($result)"
    )

    def __init__(
        self,
        activation: Activation,
        x: SSAValue,
        w1: SSAValue,
        w2: SSAValue,
        *,
        b1: SSAValue | None = None,
        b2: SSAValue | None = None,
    ) -> None:
        dims = (*shape_of(x)[:-1], shape_of(w2)[0])
        super().__init__(
            operands=[x, w1, w2, b1, b2],
            properties={"activation": ActivationAttr(activation)},
            result_types=[tensor_of(element_of(x), dims)],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        x, w1, w2 = shape_of(self.x), shape_of(self.w1), shape_of(self.w2)
        fits = len(w1) == 2 and all_agree(w1[1:], x[-1:])
        fits &= self.b1 is None or all_agree(shape_of(self.b1), w1[:1])
        check(self, 1, fits, "w1 must be [F, D] where x is [..., D], and b1 [F]")
        fits = len(w2) == 2 and all_agree(w2[1:], w1[:1])
        fits &= self.b2 is None or all_agree(shape_of(self.b2), w2[:1])
        check(self, 2, fits, "w2 must be [E, F] and b2 [E]")
        fits = all_agree(shape_of(self.result), (*x[:-1], w2[0]))
        check(self, 3, fits, "the result must be [..., E]")
        elements = {element_of(v) for v in (*self.operands, self.result)}
        check(self, 4, len(elements) == 1 and is_float(element_of(self.x)), "one float type")
