"""Positions of tokens in the `mllm` dialect."""

from __future__ import annotations

from xdsl.dialects.builtin import BoolAttr, IntegerAttr, TensorType, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure

from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.dialects.mllm.contract import agree, all_agree, check, integer
from mllm_compiler.dialects.types import element_of, is_float, shape_of


@irdl_op_definition
class RopeOp(IRDLOperation):
    """Rotate pairs of each head by angles that grow with the position (Su et al. 2021).

    x [B, T, H*D], positions [B, T] or [1, T] i64, inv_freq [R/2] -> [B, T, H*D]. The first R <= D
    dims of a head rotate by position * inv_freq: pairs (i, i + R/2), or (2i, 2i + 1) when
    interleaved; the others stay.

    C1  x is [B, T, H*D].
    C2  positions are [B, T] or [1, T], i64.
    C3  inv_freq is rank 1 and R <= D.
    C4  the result has the type of x, which is floating point.
    """

    name = "mllm.rope"

    x = operand_def(TensorType)
    positions = operand_def(TensorType)
    inv_freq = operand_def(TensorType)
    heads = prop_def(IntegerAttr)
    interleaved = prop_def(BoolAttr, default_value=BoolAttr.from_bool(False))
    result = result_def(TensorType)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = (
        "$x `,` $positions `,` $inv_freq attr-dict `:` functional-type(operands, results)"
    )

    def __init__(
        self,
        x: SSAValue,
        positions: SSAValue,
        inv_freq: SSAValue,
        *,
        heads: int,
        interleaved: bool = False,
    ) -> None:
        super().__init__(
            operands=[x, positions, inv_freq],
            properties={
                "heads": integer(heads),
                "interleaved": BoolAttr.from_bool(interleaved),
            },
            result_types=[tensor_of(element_of(x), shape_of(x))],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        x, heads = shape_of(self.x), self.heads.value.data
        width = x[2].as_int() if len(x) == 3 else None
        fits = len(x) == 3 and heads > 0 and (width is None or width % heads == 0)
        check(self, 1, fits, "x must be [B, T, H*D]")
        positions = shape_of(self.positions)
        fits = len(positions) == 2 and agree(positions[1], x[1])
        fits &= element_of(self.positions) == i64
        check(self, 2, fits, "positions must be [B, T] of i64")
        rotated = shape_of(self.inv_freq)
        half = rotated[0].as_int() if len(rotated) == 1 else None
        fits = len(rotated) == 1 and (half is None or width is None or 2 * half <= width // heads)
        check(self, 3, fits, "inv_freq must be [R/2] with R <= D")
        fits = all_agree(shape_of(self.result), x) and is_float(element_of(self.x))
        check(self, 4, fits, "the result must have the floating-point type of x")


@irdl_op_definition
class AlibiOp(IRDLOperation):
    """Attention bias that falls with distance (Press et al. 2022): -> [1, H, T, S].

    The bias of head h, query t and key s is m (s - t - (S - T)). The slope m of head h is
    2^(-8(h+1)/H) where H is a power of two; else the first heads take the slopes of the next lower
    power of two, the others every second slope of the power above it.

    C1  heads is positive.
    C2  the result is [1, H, T, S], floating point.
    """

    name = "mllm.alibi"

    heads = prop_def(IntegerAttr)
    result = result_def(TensorType)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"

    def __init__(self, element: Attribute, queries: Dim, keys: Dim, *, heads: int) -> None:
        super().__init__(
            properties={"heads": integer(heads)},
            result_types=[tensor_of(element, (1, heads, queries, keys))],
        )

    def verify_(self) -> None:
        """Checks the constraints of the docstring."""
        heads = self.heads.value.data
        check(self, 1, heads > 0, "heads must be positive")
        dims = shape_of(self.result)
        fits = len(dims) == 4 and all_agree(dims[:2], (1, heads))
        check(
            self, 2, fits and is_float(element_of(self.result)), "the result must be [1, H, T, S]"
        )
