"""`lift-tables`: a weight that only counts, or compares positions, is computed instead; exact.

    %table = mllm.weight {...} : tensor<1x1x256x256xi1>      // true up to the diagonal
    %seen = mllm.slice %table {starts = #mllm.dims<"0", "0", "past", "0">, ...}
      : (tensor<1x1x256x256xi1>) -> tensor<1x1x?x?xi1, #mllm.dims<"1", "1", "seq", "past + seq">>

becomes

    %queries = mllm.iota {start = "past", ...} : tensor<?xi64, #mllm.dims<"seq">>
    %keys = mllm.iota {start = "0", ...} : tensor<?xi64, #mllm.dims<"past + seq">>
    %seen = mllm.compare le (mllm.reshape %keys), (mllm.reshape %queries) : ...

and a window of the integers 0, 1, 2, ... becomes `mllm.iota`. So `lift-masks` and the kernels see
positions, and the table is no part of the bundle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, i1, i64
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from mllm_compiler.dialects import store_of
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.dialects.mllm import (
    CastOp,
    CompareKind,
    CompareOp,
    ConstantOp,
    IotaOp,
    ReshapeOp,
    SliceOp,
    WeightOp,
    constant_array,
)
from mllm_compiler.dialects.types import element_of, is_integer, shape_of
from mllm_compiler.passes.matching import made_by
from mllm_compiler.passes.rewrite import On, rewrite, substitute
from mllm_compiler.weights import WeightStore

Dims = tuple[Dim, ...]


def _window(value: SSAValue) -> tuple[SSAValue, Dims] | None:
    """The weight or constant of which a value is a window, and where the window starts."""
    starts = (Dim(),) * len(shape_of(value))
    while (cut := made_by(value, SliceOp)) is not None:
        if set(cut.step_list) != {1}:
            return None
        starts = tuple(a + b for a, b in zip(starts, cut.starts.data, strict=True))
        value = cut.x
    return (value, starts) if starts else None


def _integers(store: WeightStore, value: SSAValue) -> NDArray[np.generic] | None:
    """The elements of a weight or constant that holds integers or booleans."""
    weight = made_by(value, WeightOp)
    if weight is None:
        return constant_array(value)
    blob = weight.value
    if not (is_integer(blob.element) or blob.element == i1) or blob.digest.data not in store:
        return None
    return store.array(blob.digest.data, str(blob.element), blob.dims)


def _is_triangle(array: NDArray[np.generic]) -> bool:
    """Whether a table [1.., N, N] is true up to its diagonal, and nowhere else."""
    if array.dtype != np.bool_ or array.ndim < 2 or array.size != array.shape[-1] ** 2:
        return False
    table = array.reshape(-1, array.shape[-1])
    return len(table) > 1 and np.array_equal(table, np.tri(len(table), dtype=np.bool_))


def _counts(array: NDArray[np.generic]) -> bool:
    """Whether a row [1.., N] holds 0, 1, 2, ..."""
    row = array.ndim > 0 and array.size == array.shape[-1] > 1
    return row and array.dtype.kind == "i" and np.array_equal(array.ravel(), np.arange(array.size))


def _counter(value: SSAValue, axis: int, start: Dim) -> list[Operation]:
    """Counts along one axis of a value from a start on."""
    dims = [Dim.const(1)] * len(shape_of(value))
    dims[axis] = shape_of(value)[axis]
    counted = IotaOp(dims[axis], start)
    return [counted, ReshapeOp(counted.result, dims)]


def _computed(store: WeightStore, op: Operation, rewriter: PatternRewriter) -> None:
    value = op.results[0]
    found = _window(value)
    if found is None or any(d.unknown for d in shape_of(value)):
        return
    if all(isinstance(use.operation, SliceOp) for use in value.uses):
        return
    table, starts = _integers(store, found[0]), found[1]
    if table is None:
        return
    if _is_triangle(table):
        keys, queries = (_counter(value, axis, starts[axis]) for axis in (-1, -2))
        sides = keys[-1].results[0], queries[-1].results[0]
        substitute(rewriter, op, *keys, *queries, CompareOp(CompareKind.LE, *sides))
    elif _counts(table) and not isinstance(op, ConstantOp):
        made = _counter(value, -1, starts[-1])
        if element_of(value) != i64:
            made.append(CastOp(made[-1].results[0], element_of(value)))
        substitute(rewriter, op, *made)


@dataclass(frozen=True)
class LiftTables(ModulePass):
    """Recognises tables of positions."""

    name = "lift-tables"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites to a fixpoint."""
        store = store_of(ctx)

        def pattern(op: Operation, rewriter: PatternRewriter) -> None:
            _computed(store, op, rewriter)

        rewrite(op, *(On(root, pattern) for root in (SliceOp, WeightOp, ConstantOp)))
