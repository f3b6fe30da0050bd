"""Products, norms and reductions over the last axes, float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, IntegerAttr, StringAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
    result_def,
    var_result_def,
)

from mllm_compiler.dialects.calls import ints
from mllm_compiler.dialects.cpu.base import LANES, CpuOp
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm.contract import agree, all_agree, check
from mllm_compiler.dialects.types import shape_of

ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu")
REDUCTIONS = (
    *("sum", "mean", "max", "min", "prod", "l1", "l2"),
    *("sum_square", "log_sum", "log_sum_exp"),
)


@irdl_op_definition
class F32LinearOp(CpuOp):
    """Multiply by a packed weight, add a bias, apply an activation: [..., K] -> [..., N].

    `w` is the panel16 layout of a [N, K] matrix: panel p, row k, lane j holds W[16p + j, k]. With
    several results, y has the first columns, the next the ones behind them.

    C1  w is [ceil(n / 16), K, 16].
    C2  bias is [n].
    C3  y is x with the last dimension n; of several results each is x with another last dimension,
        all but the last multiples of 16, together n.
    """

    name = "cpu.f32_linear"
    ENUMS: ClassVar[dict[str, tuple[str, ...]]] = {"activation": ACTIVATIONS}
    x = operand_def(TensorType)
    w = operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    n = prop_def(IntegerAttr)
    activation = prop_def(StringAttr)
    y = result_def(TensorType)
    more = var_result_def(TensorType)

    def check_contract(self) -> None:
        """C1 to C3."""
        n, x = self.n.value.data, shape_of(self.x)
        panels = (-(-n // LANES), x[-1], LANES)
        check(self, 1, all_agree(shape_of(self.w), panels), "w is [ceil(n / 16), K, 16]")
        fits = self.bias is None or all_agree(shape_of(self.bias), (n,))
        check(self, 2, fits, "bias is [n]")
        fits = are_columns(self.results, self.x, n)
        check(self, 3, fits, "y is x with the last dimension n, cut at multiples of 16")


def are_columns(parts: Sequence[SSAValue], x: SSAValue, n: int) -> bool:
    """Whether each result is x with another last dimension, cut at panels, together n."""
    fits = all(all_agree(shape_of(y)[:-1], shape_of(x)[:-1]) for y in parts)
    widths = [shape_of(y)[-1] for y in parts]
    fits &= agree(sum(widths, start=Dim.const(0)), n)
    return fits and all((width.as_int() or 1) % LANES == 0 for width in widths[:-1])


@irdl_op_definition
class F32MatmulOp(CpuOp):
    """Multiply matrices in the last two axes, leading axes broadcast: [.., M, K], [.., K, N].

    C1  both operands have two axes or more; b is [..., N, K] where transpose_b.
    C2  the inner extents agree.
    """

    name = "cpu.f32_matmul"
    a = operand_def(TensorType)
    b = operand_def(TensorType)
    transpose_b = prop_def(IntegerAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        a, b = shape_of(self.a), shape_of(self.b)
        check(self, 1, len(a) > 1 and len(b) > 1, "both operands have two axes or more")
        inner = b[len(b) - (1 if self.transpose_b.value.data else 2)]
        check(self, 2, agree(a[len(a) - 1], inner), "the inner extents agree")


@irdl_op_definition
class F32LayerNormOp(CpuOp):
    """Normalise the last axis to mean 0 and variance 1, then scale and shift it (Ba et al. 2016).

    C1  weight and bias are [D].
    C2  y has x's shape.
    """

    name = "cpu.f32_layer_norm"
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    x = operand_def(TensorType)
    weight = opt_operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    epsilon = prop_def(FloatAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        _check_norm(self, self.weight, self.bias)


@irdl_op_definition
class F32RmsNormOp(CpuOp):
    """Scale each row to unit root-mean-square (Zhang & Sennrich 2019).

    C1  weight is [D].
    C2  y has x's shape.
    """

    name = "cpu.f32_rms_norm"
    x = operand_def(TensorType)
    weight = operand_def(TensorType)
    epsilon = prop_def(FloatAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        _check_norm(self, self.weight)


@irdl_op_definition
class F32SoftmaxOp(CpuOp):
    """Exponentiate and normalise along one axis.

    C1  axis names an axis of x, counted from the front.
    C2  y has x's shape.
    """

    name = "cpu.f32_softmax"
    x = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        fits = 0 <= self.axis.value.data < len(shape_of(self.x))
        check(self, 1, fits, "axis names an axis of x")
        check(self, 2, all_agree(shape_of(self.y), shape_of(self.x)), "y has x's shape")


@irdl_op_definition
class F32ReduceOp(CpuOp):
    """Reduce axes to one value each; y keeps them as 1 or leaves them out.

    C1  axes are ascending and name axes of x.
    """

    name = "cpu.f32_reduce"
    ENUMS: ClassVar[dict[str, tuple[str, ...]]] = {"kind": REDUCTIONS}
    x = operand_def(TensorType)
    kind = prop_def(StringAttr)
    axes = prop_def(DenseArrayBase)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        axes = ints(self.axes)
        named = all(0 <= a < len(shape_of(self.x)) for a in axes)
        fits = named and axes == sorted(set(axes))
        check(self, 1, fits, "axes are ascending and name axes of x")


def _check_norm(op: F32LayerNormOp | F32RmsNormOp, *vectors: SSAValue | None) -> None:
    last = shape_of(op.x)[-1:]
    fits = all(v is None or all_agree(shape_of(v), last) for v in vectors)
    check(op, 1, fits, "weight and bias are [D]")
    check(op, 2, all_agree(shape_of(op.y), shape_of(op.x)), "y has x's shape")
