"""Products and normalisations of QNN."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar, Final

from xdsl.dialects.builtin import BoolAttr, DenseArrayBase, FloatAttr, IntegerAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
    result_def,
)

from mllm_compiler.dialects.calls import ints
from mllm_compiler.dialects.mllm.contract import all_agree, broadcast_dims, check
from mllm_compiler.dialects.qnn.base import QnnOp, arch_of
from mllm_compiler.dialects.qnn.quant import StaticTensorOp
from mllm_compiler.dialects.types import element_of, extents, shape_of

FALSE = BoolAttr.from_bool(False)

WIDE: Final = 73
"""The first HTP that multiplies two matrices of 16 bits, and has a LayerNorm with such a gain."""

TILE: Final = 32
"""Fewer rows of 16 bits, by more columns of 8, older ones multiply wrong, not all of them."""


@irdl_op_definition
class FullyConnectedOp(QnnOp):
    """x [rows, K] times the rows of weights [N, K], and bias [N]? -> y [rows, N].

    C1  x is [rows, K] and weights is [N, K].
    C2  bias is [N].
    C3  y is [rows, N].
    C4  where rows of weights have scales, a bias of codes has them too, those of x times them: HTP
        takes others, and reads the bias by these.
    """

    name = "qnn.fully_connected"
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    x = operand_def(TensorType)
    weights = operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 to C4; of C4 that there are as many scales."""
        x, weights = extents(self.x), extents(self.weights)
        fits = len(x) == 2 == len(weights) and weights[1] == x[1]
        check(self, 1, fits, "x is [rows, K] and weights is [N, K]")
        check(self, 2, self.bias is None or extents(self.bias) == weights[:1], "bias is [N]")
        check(self, 3, extents(self.y) == (x[0], weights[0]), "y is [rows, N]")
        rows = [v is not None and _has_rows(v) for v in (self.weights, self.bias)]
        coded = self.bias is not None and isinstance(self.bias.owner, StaticTensorOp)
        check(
            self, 4, not coded or rows[0] == rows[1], "bias has scales where rows of weights have"
        )


def _has_rows(value: SSAValue) -> bool:
    """Whether a static tensor has a scale for each element of its first axis."""
    return isinstance(value.owner, StaticTensorOp) and value.owner.axis.value.data == 0


@irdl_op_definition
class MatMulOp(QnnOp):
    """a [..., M, K] times b [..., K, N] -> y [..., M, N]; transpose_in0 and 1 turn a matrix.

    C1  the matrices fit, and what goes before them broadcasts.
    C2  before v73 at least 32 rows of 16 bits are multiplied by 8 bits, or at most 32 columns: HTP
        takes others, and gives something else for some.
    """

    name = "qnn.mat_mul"
    a = operand_def(TensorType)
    b = operand_def(TensorType)
    transpose_in0 = prop_def(BoolAttr, default_value=FALSE)
    transpose_in1 = prop_def(BoolAttr, default_value=FALSE)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        a, b = extents(self.a), extents(self.b)
        (m, k) = reversed(a[-2:]) if self.transpose_in0 else a[-2:]
        (depth, n) = reversed(b[-2:]) if self.transpose_in1 else b[-2:]
        dims = broadcast_dims(shape_of(self.a)[:-2], shape_of(self.b)[:-2])
        fits = k == depth and dims is not None
        fits = fits and all_agree(shape_of(self.y), (*(dims or ()), m, n))
        check(self, 1, fits, "y is [..., M, N]")
        mixed = [str(element_of(v)) for v in (self.a, self.b)] == ["ui16", "ui8"]
        right = not mixed or arch_of(self) >= WIDE or m >= TILE or n <= TILE
        check(self, 2, right, "HTP before v73 multiplies few rows of 16 bits by 8 bits wrong")


@irdl_op_definition
class SoftmaxOp(QnnOp):
    """e^(beta x), along the last axis as a part of its sum: x -> y.

    C1  y has the shape of x.
    C2  axis is the last one: HTP has no other.
    """

    name = "qnn.softmax"
    x = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    beta = prop_def(FloatAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        check(self, 1, extents(self.x) == extents(self.y), "y has the shape of x")
        last = self.axis.value.data == len(extents(self.x)) - 1
        check(self, 2, last, "axis is the last one")


class NormOp(QnnOp, ABC):
    """Base of norms of the rows of a matrix: x [rows, D], gamma [D] -> y."""

    TENSORS: ClassVar[dict[str, tuple[str, int]]] = {"axes": ("ui32", 1)}
    x = operand_def(TensorType)
    gamma = operand_def(TensorType)
    epsilon = prop_def(FloatAttr)
    axes = prop_def(DenseArrayBase)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 to C3."""
        x, sides = extents(self.x), {extents(v) for v in self.operands[1:]}
        check(self, 1, len(x) == 2 and sides == {x[-1:]}, "x is [rows, D], the others are [D]")
        check(self, 2, ints(self.axes) == [1], "axes is the last one")
        fits = extents(self.y) == x and self.epsilon.value.data > 0
        check(self, 3, fits, "y has the shape of x, and epsilon is above 0")


@irdl_op_definition
class RmsNormOp(NormOp):
    """x over the root of the mean of its squares plus epsilon, by gamma: -> y.

    QNN has a beta too, which HTP leaves out of halves; and more axes, of which its emulator
    computes many rows wrong. HTP cuts the result to codes, where other operators round.

    C1  x is [rows, D], gamma is [D].
    C2  axes is the last one.
    C3  y has the shape of x, and epsilon is above 0.
    """

    name = "qnn.rms_norm"


@irdl_op_definition
class LayerNormOp(NormOp):
    """x less its mean, over the root of its variance plus epsilon, by gamma, plus beta: -> y.

    QNN has more axes, of which HTP's emulator computes many rows wrong.

    C1  x is [rows, D], gamma and beta are [D].
    C2  axes is the last one.
    C3  y has the shape of x, and epsilon is above 0.
    """

    name = "qnn.layer_norm"
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    x = operand_def(TensorType)
    gamma = operand_def(TensorType)
    beta = opt_operand_def(TensorType)


@irdl_op_definition
class RotaryEmbeddingOp(QnnOp):
    """Pairs of x [B, H, T, D] turned by cos, sin [B, T, D / 2] -> y; pairs are halves of a head.

    C1  cos and sin are [B, T, D / 2].
    C2  y has the shape of x.
    """

    name = "qnn.rotary_embedding"
    x = operand_def(TensorType)
    cos = operand_def(TensorType)
    sin = operand_def(TensorType)
    interleaved = prop_def(BoolAttr, default_value=FALSE)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        x = extents(self.x)
        sides = {extents(self.cos), extents(self.sin)}
        fits = len(x) == 4 and x[3] % 2 == 0 and sides == {(x[0], x[2], x[3] // 2)}
        check(self, 1, fits, "cos and sin are [B, T, D / 2]")
        check(self, 2, extents(self.y) == x, "y has the shape of x")


class ReduceOp(QnnOp, ABC):
    """Base of the ops that make one element of those along some axes: x -> y."""

    TENSORS: ClassVar[dict[str, tuple[str, int]]] = {"axes": ("ui32", 1)}
    x = operand_def(TensorType)
    axes = prop_def(DenseArrayBase)
    keep_dims = prop_def(BoolAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        axes, x = ints(self.axes), extents(self.x)
        kept = tuple(1 if i in axes else n for i, n in enumerate(x))
        if not self.keep_dims:
            kept = tuple(n for i, n in enumerate(x) if i not in axes)
        check(self, 1, extents(self.y) == kept, "y lacks the axes, or has 1 there")


@irdl_op_definition
class ReduceMeanOp(ReduceOp):
    """The mean along some axes: x -> y.

    C1  y lacks the axes, or has 1 there with keep_dims.
    """

    name = "qnn.reduce_mean"


@irdl_op_definition
class ReduceSumOp(ReduceOp):
    """The sum along some axes: x -> y.

    C1  y lacks the axes, or has 1 there with keep_dims.
    """

    name = "qnn.reduce_sum"


@irdl_op_definition
class ReduceMaxOp(ReduceOp):
    """The largest along some axes: x -> y.

    C1  y lacks the axes, or has 1 there with keep_dims.
    """

    name = "qnn.reduce_max"


@irdl_op_definition
class ReduceMinOp(ReduceOp):
    """The least along some axes: x -> y.

    C1  y lacks the axes, or has 1 there with keep_dims.
    """

    name = "qnn.reduce_min"
