"""Ops of the `mllm` dialect that do at once what a kernel of a vendor does at once."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import BoolAttr, IntegerAttr, TensorType, i64
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

from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.dialects.mllm.attention import divides
from mllm_compiler.dialects.mllm.contract import agree, all_agree, check, integer
from mllm_compiler.dialects.mllm.kinds import Activation, ActivationAttr
from mllm_compiler.dialects.types import element_of, is_float, rank_of, shape_of


@irdl_op_definition
class ActivatedLinearOp(IRDLOperation):
    """Apply an affine map and a function: x [..., K], weight [N, K], bias? [N] -> [..., N].

    y = activation(x weight^T + bias): `mllm.linear` with the epilogue that products of most devices
    have (the fused activation of TensorFlow Lite's FULLY_CONNECTED).

    C1  weight is rank 2 and its second dim is the last of x.
    C2  bias is [N].
    C3  the result is [..., N] with the leading dims of x.
    C4  x, weight, bias and the result have one floating-point type.
    """

    name = "mllm.activated_linear"

    activation = prop_def(ActivationAttr)
    x = operand_def(TensorType)
    weight = operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    result = result_def(TensorType)

    traits = traits_def(Pure())
    assembly_format = (
        "$activation $x `,` $weight (`,` $bias^)? attr-dict `:` functional-type(operands, results)"
    )

    def __init__(
        self, activation: Activation, x: SSAValue, weight: SSAValue, bias: SSAValue | None = None
    ) -> None:
        dims = (*shape_of(x)[:-1], shape_of(weight)[0])
        super().__init__(
            operands=[x, weight, bias],
            properties={"activation": ActivationAttr(activation)},
            result_types=[tensor_of(element_of(x), dims)],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        x, weight = shape_of(self.x), shape_of(self.weight)
        fits = len(weight) == 2 and len(x) >= 1 and agree(weight[1], x[-1])
        check(self, 1, fits, "weight must be [N, K] where x is [..., K]")
        fits = self.bias is None or all_agree(shape_of(self.bias), weight[:1])
        check(self, 2, fits, "bias must be [N]")
        fits = all_agree(shape_of(self.result), (*x[:-1], weight[0]))
        check(self, 3, fits, "the result must be [..., N]")
        elements = {element_of(v) for v in (*self.operands, self.result)}
        check(self, 4, len(elements) == 1 and is_float(element_of(self.x)), "one float type")


@irdl_op_definition
class QkvOp(IRDLOperation):
    """Queries, keys and values of one stream by one product: x [B, T, K], weight [N, K] -> q, k, v.

    The rows of weight, and the elements of bias? [N], are those of q [B, T, H*D], then of k
    [B, T, Hkv*D], then of v [B, T, Hkv*Dv]: y = x weight^T + bias, cut in three. With positions and
    inv_freq, q and k are turned as by `mllm.rope` (the fused projection of Megatron-LM, Shoeybi et
    al. 2019; with rotary positions as in ONNX Runtime's GroupQueryAttention).

    C1  kv_heads divides heads, both are positive.
    C2  x is [B, T, K], weight [N, K] and bias [N].
    C3  q, k and v are [B, T, H*D], [B, T, Hkv*D] and [B, T, Hkv*Dv], together N wide.
    C4  positions are [B, T] or [1, T], i64, and stand with inv_freq [R/2], R <= D.
    C5  x, weight, bias and the results have one floating-point type.
    """

    name = "mllm.qkv"

    x = operand_def(TensorType)
    weight = operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    positions = opt_operand_def(TensorType)
    inv_freq = opt_operand_def(TensorType)
    heads = prop_def(IntegerAttr)
    kv_heads = prop_def(IntegerAttr)
    interleaved = prop_def(BoolAttr, default_value=BoolAttr.from_bool(False))
    q = result_def(TensorType)
    k = result_def(TensorType)
    v = result_def(TensorType)

    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
    traits = traits_def(Pure())
    assembly_format = (
        "$x `,` $weight (`bias` `(` $bias^ `:` type($bias) `)`)? "
        "(`rope` `(` $positions^ `:` type($positions) `)`)? "
        "(`inv_freq` `(` $inv_freq^ `:` type($inv_freq) `)`)? attr-dict `:` "
        "`(` type($x) `,` type($weight) `)` `->` `(` type($q) `,` type($k) `,` type($v) `)`"
    )

    def __init__(
        self,
        x: SSAValue,
        weight: SSAValue,
        bias: SSAValue | None = None,
        *,
        results: Sequence[Attribute],
        heads: int,
        kv_heads: int,
        positions: SSAValue | None = None,
        inv_freq: SSAValue | None = None,
        interleaved: bool = False,
    ) -> None:
        super().__init__(
            operands=[x, weight, bias, positions, inv_freq],
            properties={
                "heads": integer(heads),
                "kv_heads": integer(kv_heads),
                "interleaved": BoolAttr.from_bool(interleaved),
            },
            result_types=results,
        )

    @property
    def head_count(self) -> int:
        """Heads of q (H)."""
        return self.heads.value.data

    @property
    def kv_head_count(self) -> int:
        """Heads of k and v (Hkv)."""
        return self.kv_heads.value.data

    @property
    def widths(self) -> tuple[Dim, ...]:
        """How wide q, k and v are."""
        return tuple(shape_of(part)[2] for part in self.results)

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        heads, kv_heads = self.head_count, self.kv_head_count
        check(self, 1, heads > 0 < kv_heads and heads % kv_heads == 0, "kv_heads divides heads")
        x, weight = shape_of(self.x), shape_of(self.weight)
        fits = len(x) == 3 and len(weight) == 2 and agree(weight[1], x[2])
        fits &= self.bias is None or all_agree(shape_of(self.bias), weight[:1])
        check(self, 2, fits, "x must be [B, T, K], weight [N, K] and bias [N]")
        fits = all(all_agree(shape_of(r)[:-1], x[:2]) and rank_of(r) == 3 for r in self.results)
        q, k, v = self.widths if fits else x
        fits = fits and agree(q, k * (heads // kv_heads)) and agree(q + k + v, weight[0])
        fits &= all(divides(n, w) for n, w in ((heads, q), (kv_heads, k), (kv_heads, v)))
        check(self, 3, fits, "q, k and v must be [B, T, *], together as wide as weight has rows")
        check(self, 4, self._turns(), "positions must be [B, T] of i64 and inv_freq [R/2], R <= D")
        values = (self.x, self.weight, self.bias, *self.results)
        elements = {element_of(value) for value in values if value is not None}
        check(self, 5, len(elements) == 1 and is_float(element_of(self.x)), "one float type")

    def _turns(self) -> bool:
        """Whether positions and inv_freq are absent, or fit."""
        if self.positions is None or self.inv_freq is None:
            return self.positions is self.inv_freq
        positions, half = shape_of(self.positions), shape_of(self.inv_freq)
        fits = len(positions) == 2 and agree(positions[1], shape_of(self.x)[1])
        fits &= element_of(self.positions) == i64 and is_float(element_of(self.inv_freq))
        width, turned = self.widths[0].as_int(), half[0].as_int() if len(half) == 1 else None
        room = turned is None or width is None or 2 * turned <= width // self.head_count
        return fits and len(half) == 1 and room
