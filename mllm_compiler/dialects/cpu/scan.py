"""Kernels that carry something along an axis."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, TensorType
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def

from mllm_compiler.dialects.cpu.base import CpuOp
from mllm_compiler.dialects.mllm.contract import all_agree, check
from mllm_compiler.dialects.types import shape_of


@irdl_op_definition
class CumsumOp(CpuOp):
    """Sum all elements up to each one along an axis; f32, f64, i64 or i32.

    Exclusive leaves the element itself out; reverse sums from the end.

    C1  axis names an axis of x, counted from the front.
    C2  y has x's shape.
    """

    name = "cpu.cumsum"
    x = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    exclusive = prop_def(IntegerAttr)
    reverse = prop_def(IntegerAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        fits = 0 <= self.axis.value.data < len(shape_of(self.x))
        check(self, 1, fits, "axis names an axis of x")
        check(self, 2, all_agree(shape_of(self.y), shape_of(self.x)), "y has x's shape")


@irdl_op_definition
class F32SelectiveScanOp(CpuOp):
    """Run a selective state space over tokens (Gu & Dao 2023): x [B, T, D] -> y, last.

    Of `mllm.selective_scan`: h = exp(step a) h + step b x, y = c h, from `state` to `last`.

    C1  step and y have x's shape [B, T, D].
    C2  b and c are [B, T, N] where a is [D, N].
    C3  state and last are [B, D, N].
    """

    name = "cpu.f32_selective_scan"
    x = operand_def(TensorType)
    step = operand_def(TensorType)
    a = operand_def(TensorType)
    b = operand_def(TensorType)
    c = operand_def(TensorType)
    state = operand_def(TensorType)
    y = result_def(TensorType)
    last = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 to C3."""
        x, a = shape_of(self.x), shape_of(self.a)
        fits = len(x) == 3 and all(all_agree(shape_of(v), x) for v in (self.step, self.y))
        check(self, 1, fits, "step and y have x's shape [B, T, D]")
        batch, tokens, channels = x
        fits = len(a) == 2 and all_agree(a[:1], (channels,))
        rows = (batch, tokens, a[-1])
        fits = fits and all(all_agree(shape_of(v), rows) for v in (self.b, self.c))
        check(self, 2, fits, "b and c are [B, T, N] where a is [D, N]")
        states = (batch, channels, a[1])
        fits = all(all_agree(shape_of(v), states) for v in (self.state, self.last))
        check(self, 3, fits, "state and last are [B, D, N]")
