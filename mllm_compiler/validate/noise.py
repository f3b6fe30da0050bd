"""How far roundings alone move the results of a graph: it is run with each op's result off by one.

A deep model, and one whose activations become codes, carries the last bit of a sum far: which of
two equal sums is taken decides a code. What a pass that is exact but for roundings may do to such a
model is measured, not guessed.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from mllm_compiler.dialects.mllm import BinaryOp, LayerNormOp, RmsNormOp, RopeOp, UnaryOp
from mllm_compiler.hal.cost import FLOPS
from mllm_compiler.validate.compare import relative_error
from mllm_compiler.validate.run import run_graph
from mllm_compiler.weights import WeightStore

Values = Mapping[str, NDArray[np.generic]]

ELEMENTWISE = (BinaryOp, UnaryOp, LayerNormOp, RmsNormOp, RopeOp)
"""Ops whose roundings are as large as each element."""


def rounding_noise(
    module: ModuleOp, graph: FuncOp, inputs: Values, store: WeightStore
) -> dict[str, float]:
    """The relative error of each result where every op that computes is off by a rounding.

    Each element of a floating-point result is off by a unit in its last place, up or down; where
    the op sums products, in that of the largest of its row: numbers that cancel leave as much.

    Args:
        module: Holds the graph, in the `mllm` dialect.
        graph: What is run, twice.
        inputs: Its inputs.
        store: The bytes of weights.
    """
    plain = run_graph(module, graph, inputs, store)
    given = {name: array.copy() for name, array in inputs.items()}
    random = np.random.default_rng(zlib.crc32(graph.sym_name.data.encode()))

    def disturb(op: Operation, results: Sequence[NDArray[np.generic]]) -> None:
        for array in results if type(op) in FLOPS else ():
            if array.dtype.kind == "f" and array.flags.writeable and array.size:
                _add_rounding(array, random, in_row=not isinstance(op, ELEMENTWISE))

    moved = run_graph(module, graph, given, store, listener=disturb)
    return {name: relative_error(moved[name], value) for name, value in plain.items()}


def _add_rounding(array: NDArray[Any], random: np.random.Generator, *, in_row: bool) -> None:
    unit = np.where(np.isfinite(array), np.abs(array), 0)
    if in_row and array.ndim:
        unit = unit.max(axis=-1, keepdims=True)
    signs = random.integers(0, 2, array.shape) * 2 - 1
    array += (unit * np.finfo(array.dtype).eps * signs).astype(array.dtype)
