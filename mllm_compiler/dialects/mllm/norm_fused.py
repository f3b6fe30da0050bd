"""Norms of the `mllm` dialect together with what stands before or behind them."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import FloatAttr, TensorType
from xdsl.ir import Attribute, SSAValue
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

from mllm_compiler.dialects.dims import tensor_of
from mllm_compiler.dialects.mllm.contract import all_agree, check, number
from mllm_compiler.dialects.mllm.kinds import Activation, ActivationAttr, NormKind, NormKindAttr
from mllm_compiler.dialects.types import element_of, is_float, shape_of


def _norm_fits(kind: NormKind, x: SSAValue, weight: SSAValue | None, bias: SSAValue | None) -> bool:
    """Whether weight and bias are [D]; a root-mean-square norm has a weight and no bias."""
    sides = [side for side in (weight, bias) if side is not None]
    fits = all(all_agree(shape_of(side), shape_of(x)[-1:]) for side in sides)
    return fits and (kind is NormKind.LAYER or (weight is not None and bias is None))


@irdl_op_definition
class ResidualNormOp(IRDLOperation):
    """Add to the residual stream and norm it: x, residual [..., D] -> sum, result [..., D].

    sum = x + residual, result = norm(sum), which is `mllm.rms_norm` or `mllm.layer_norm` with
    weight? [D] and bias? [D] (ONNX Runtime's SkipLayerNormalization, SkipSimplifiedLayerNorm).

    C1  x and residual have one shape, which both results have.
    C2  weight and bias are [D]; rms has a weight and no bias.
    C3  epsilon is not negative.
    C4  all have one floating-point type.
    """

    name = "mllm.residual_norm"

    kind = prop_def(NormKindAttr)
    x = operand_def(TensorType)
    residual = operand_def(TensorType)
    weight = opt_operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    epsilon = prop_def(FloatAttr)
    sum = result_def(TensorType)
    result = result_def(TensorType)

    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
    traits = traits_def(Pure())
    assembly_format = (
        "$kind $x `,` $residual (`weight` `(` $weight^ `:` type($weight) `)`)? "
        "(`bias` `(` $bias^ `:` type($bias) `)`)? attr-dict `:` "
        "`(` type($x) `,` type($residual) `)` `->` `(` type($sum) `,` type($result) `)`"
    )

    def __init__(
        self,
        kind: NormKind,
        x: SSAValue,
        residual: SSAValue,
        weight: SSAValue | None = None,
        bias: SSAValue | None = None,
        *,
        epsilon: float,
        results: Sequence[Attribute],
    ) -> None:
        super().__init__(
            operands=[x, residual, weight, bias],
            properties={"kind": NormKindAttr(kind), "epsilon": number(epsilon)},
            result_types=results,
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        values = (self.residual, self.sum, self.result)
        fits = all(all_agree(shape_of(self.x), shape_of(v)) for v in values)
        check(self, 1, fits, "x, residual and both results must have one shape")
        fits = _norm_fits(self.kind.data, self.x, self.weight, self.bias)
        check(self, 2, fits, "weight and bias must be [D], and rms has a weight and no bias")
        check(self, 3, self.epsilon.value.data >= 0, "epsilon must not be negative")
        elements = {element_of(v) for v in (*self.operands, *self.results)}
        check(self, 4, len(elements) == 1 and is_float(element_of(self.x)), "one float type")


@irdl_op_definition
class NormGatedMlpOp(IRDLOperation):
    """Norm and gated feed-forward block: x [..., D], gate, up [F, D], down [E, F] -> [..., E].

    y = gated_mlp(norm(x)): `mllm.rms_norm` or `mllm.layer_norm` with weight? [D] and bias? [D],
    then `mllm.gated_mlp`; silu makes it SwiGLU, gelu GeGLU (Shazeer 2020).

    C1  gate and up are [F, D] where x is [..., D], and down is [E, F].
    C2  weight and bias are [D]; rms has a weight and no bias.
    C3  epsilon is not negative.
    C4  the result is [..., E].
    C5  all have one floating-point type.
    """

    name = "mllm.norm_gated_mlp"

    kind = prop_def(NormKindAttr)
    activation = prop_def(ActivationAttr)
    x = operand_def(TensorType)
    gate = operand_def(TensorType)
    up = operand_def(TensorType)
    down = operand_def(TensorType)
    weight = opt_operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    epsilon = prop_def(FloatAttr)
    result = result_def(TensorType)

    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
    traits = traits_def(Pure())
    assembly_format = (
        "$kind $activation $x `,` $gate `,` $up `,` $down "
        "(`weight` `(` $weight^ `:` type($weight) `)`)? "
        "(`bias` `(` $bias^ `:` type($bias) `)`)? attr-dict `:` "
        "`(` type($x) `,` type($gate) `,` type($up) `,` type($down) `)` `->` type($result)"
    )

    def __init__(
        self,
        kind: NormKind,
        activation: Activation,
        x: SSAValue,
        gate: SSAValue,
        up: SSAValue,
        down: SSAValue,
        *,
        weight: SSAValue | None = None,
        bias: SSAValue | None = None,
        epsilon: float,
    ) -> None:
        dims = (*shape_of(x)[:-1], shape_of(down)[0])
        super().__init__(
            operands=[x, gate, up, down, weight, bias],
            properties={
                "kind": NormKindAttr(kind),
                "activation": ActivationAttr(activation),
                "epsilon": number(epsilon),
            },
            result_types=[tensor_of(element_of(x), dims)],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        x, gate, down = shape_of(self.x), shape_of(self.gate), shape_of(self.down)
        fits = len(gate) == 2 and all_agree(gate, shape_of(self.up)) and all_agree(gate[1:], x[-1:])
        fits = fits and len(down) == 2 and all_agree(down[1:], gate[:1])
        check(self, 1, fits, "gate and up must be [F, D] where x is [..., D], and down [E, F]")
        fits = _norm_fits(self.kind.data, self.x, self.weight, self.bias)
        check(self, 2, fits, "weight and bias must be [D], and rms has a weight and no bias")
        check(self, 3, self.epsilon.value.data >= 0, "epsilon must not be negative")
        fits = all_agree(shape_of(self.result), (*x[:-1], down[0]))
        check(self, 4, fits, "the result must be [..., E]")
        elements = {element_of(v) for v in (*self.operands, self.result)}
        check(self, 5, len(elements) == 1 and is_float(element_of(self.x)), "one float type")
