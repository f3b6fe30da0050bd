"""Data movement: any element type by its size; no arithmetic but `cast` and `iota`."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, StringAttr, TensorType, i64
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    var_operand_def,
)

from mllm_compiler.dialects.calls import ints
from mllm_compiler.dialects.cpu.base import LANES, CpuOp
from mllm_compiler.dialects.dims import DimsAttr
from mllm_compiler.dialects.mllm.contract import agree, all_agree, check
from mllm_compiler.dialects.types import element_of, shape_of


@irdl_op_definition
class F32EmbeddingOp(CpuOp):
    """Rows of a packed table: ids [...], panel16 table of [V, D] -> [..., D].

    C1  table is [ceil(V / 16), D, 16].
    C2  y is ids with a last dimension D.
    """

    name = "cpu.f32_embedding"
    ids = operand_def(TensorType)
    table = operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        table = shape_of(self.table)
        fits = len(table) == 3 and agree(table[2], LANES)
        check(self, 1, fits, "table is [ceil(V / 16), D, 16]")
        fits = all_agree(shape_of(self.y), (*shape_of(self.ids), table[1]))
        check(self, 2, fits, "y is ids with a last dimension D")


@irdl_op_definition
class GatherOp(CpuOp):
    """Slices of x along one axis, by index: x.shape[:axis] + indices.shape + x.shape[axis+1:].

    C1  axis names an axis of x.
    C2  y has the shape above.
    """

    name = "cpu.gather"
    x = operand_def(TensorType)
    indices = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        x, axis = shape_of(self.x), self.axis.value.data
        check(self, 1, 0 <= axis < len(x), "axis names an axis of x")
        shape = (*x[:axis], *shape_of(self.indices), *x[axis + 1 :])
        fits = all_agree(shape_of(self.y), shape)
        check(self, 2, fits, "y has the shape that x and indices give")


@irdl_op_definition
class TopKOp(CpuOp):
    """The k largest (smallest) elements along an axis, best first, or their indices.

    Equal elements come in the order of their indices, NaN last; `by_index` asks for ascending
    indices instead.

    C1  axis names an axis of x.
    C2  y has the dims of x but along axis; it is of i64 where part is `indices`, else of x's type.
    """

    name = "cpu.top_k"
    ENUMS: ClassVar[dict[str, tuple[str, ...]]] = {"part": ("values", "indices")}
    x = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    smallest = prop_def(IntegerAttr)
    by_index = prop_def(IntegerAttr)
    part = prop_def(StringAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        x, y, axis = shape_of(self.x), shape_of(self.y), self.axis.value.data
        check(self, 1, 0 <= axis < len(x), "axis names an axis of x")
        fits = len(x) == len(y) and all_agree(
            (*x[:axis], *x[axis + 1 :]), (*y[:axis], *y[axis + 1 :])
        )
        element = i64 if self.part.data == "indices" else element_of(self.x)
        check(self, 2, fits and element_of(self.y) == element, "y has the dims and type above")


@irdl_op_definition
class TransposeOp(CpuOp):
    """Permute axes: y's axis i is x's axis perm[i].

    C1  perm is a permutation of x's axes.
    C2  y has the permuted shape.
    """

    name = "cpu.transpose"
    x = operand_def(TensorType)
    perm = prop_def(DenseArrayBase)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 and C2."""
        x, perm = shape_of(self.x), ints(self.perm)
        check(self, 1, sorted(perm) == list(range(len(x))), "perm is a permutation of x's axes")
        fits = all_agree(shape_of(self.y), [x[p] for p in perm])
        check(self, 2, fits, "y has the permuted shape")


@irdl_op_definition
class SliceOp(CpuOp):
    """Take every steps[i]-th element from starts[i] on, as many as y has.

    C1  starts and steps have one entry for each axis of x; no step is 0.
    """

    name = "cpu.slice"
    x = operand_def(TensorType)
    starts = prop_def(DimsAttr)
    steps = prop_def(DenseArrayBase)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        steps, rank = ints(self.steps), len(shape_of(self.x))
        fits = len(self.starts.data) == len(steps) == rank and 0 not in steps
        check(self, 1, fits, "starts and steps have one entry for each axis of x")


@irdl_op_definition
class ConcatOp(CpuOp):
    """Join tensors along one axis.

    C1  axis names an axis of y and every operand has y's rank.
    """

    name = "cpu.concat"
    xs = var_operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        rank = len(shape_of(self.y))
        fits = 0 <= self.axis.value.data < rank and all(len(shape_of(x)) == rank for x in self.xs)
        check(self, 1, fits, "axis names an axis of y and every operand has y's rank")


@irdl_op_definition
class BroadcastOp(CpuOp):
    """Repeat x to y's shape, by NumPy's rule.

    C1  x has no more axes than y.
    """

    name = "cpu.broadcast"
    x = operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        fits = len(shape_of(self.x)) <= len(shape_of(self.y))
        check(self, 1, fits, "x has no more axes than y")


@irdl_op_definition
class CastOp(CpuOp):
    """Convert elements to y's type; floats go to integers towards zero, anything to bool by != 0.

    C1  y has x's shape.
    """

    name = "cpu.cast"
    x = operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        check(self, 1, all_agree(shape_of(self.y), shape_of(self.x)), "y has x's shape")


@irdl_op_definition
class IotaOp(CpuOp):
    """Count: start, start + step, ... -> [n] i64.

    C1  y has one axis and start is one expression.
    """

    name = "cpu.iota"
    SCALARS: ClassVar[frozenset[str]] = frozenset({"start"})
    start = prop_def(DimsAttr)
    step = prop_def(IntegerAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        fits = len(shape_of(self.y)) == 1 and len(self.start.data) == 1
        check(self, 1, fits, "y has one axis and start is one expression")


@irdl_op_definition
class PadOp(CpuOp):
    """Surround x by one value: `before[i]` elements before axis i, the rest of y behind.

    `value` holds the bits of the element.

    C1  before has one entry for each axis of x.
    """

    name = "cpu.pad"
    x = operand_def(TensorType)
    before = prop_def(DenseArrayBase)
    value = prop_def(IntegerAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        fits = len(ints(self.before)) == len(shape_of(self.x)) == len(shape_of(self.y))
        check(self, 1, fits, "before has one entry for each axis of x")


@irdl_op_definition
class CopyOp(CpuOp):
    """Copy a tensor, where a graph returns what it was given or the same value twice.

    C1  y has x's type.
    """

    name = "cpu.copy"
    x = operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        fits = element_of(self.x) == element_of(self.y)
        fits &= all_agree(shape_of(self.x), shape_of(self.y))
        check(self, 1, fits, "y has x's type")


@irdl_op_definition
class AliasOp(CpuOp):
    """The same elements in row-major order under another shape; no stage, the bytes are shared.

    C1  the element type stays.
    """

    name = "cpu.alias"
    x = operand_def(TensorType)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1."""
        same = element_of(self.x) == element_of(self.y)
        check(self, 1, same, "the element type stays")
