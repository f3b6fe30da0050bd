"""The inputs that a graph is run on: an ordinary one, and those that find what it hides.

A pass may be right where sums are small and every token counts, and wrong elsewhere. So floats are
also denormal and large, masks have holes, and sequences are short, long and without a past.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.func import FuncOp

from mllm_compiler.dialects.dims import dims_of
from mllm_compiler.dialects.mllm import PipelineOp
from mllm_compiler.dialects.types import dtype_of, tensor_type
from mllm_compiler.passes.graphs import argument_names, result_names, return_of
from mllm_compiler.validate.sizes import EMPTY_PAST, Sizes, sizes_of

Array = NDArray[np.generic]
Kept = NDArray[np.bool_]
Values = Mapping[str, Array]

IDS = 8
"""Whole numbers whose meaning is unknown are smaller than this: ids, indices."""

TYPES = 2
"""The least number of types that a model of token types knows."""

DENORMAL: Final = 1e-40
"""Reciprocals of such numbers overflow, their squares vanish."""

LARGE: Final = 1e4
"""The exponentials of such numbers overflow, their squares and sums of squares do not."""


@dataclass(frozen=True)
class Case:
    """Inputs of a graph.

    Attributes:
        name: What is particular about them.
        inputs: The arrays by the name of the argument.
        mask: Which tokens count, where not all do.
        token_axes: The axes of each result that may count tokens.
    """

    name: str
    inputs: Values
    mask: Kept | None = None
    token_axes: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])

    def counted(self, results: Values) -> Values:
        """The results without the rows of tokens that do not count.

        Nobody reads such a row, and a model may leave it undefined: a query that sees no key
        attends to whatever its spelling makes of a sum of masks.
        """
        return {name: self._rows(name, array) for name, array in results.items()}

    def _rows(self, name: str, array: Array) -> Array:
        if self.mask is None:
            return array
        tokens = len(self.mask)
        for axis in self.token_axes[name]:
            if array.shape[axis] <= tokens:
                array = array.compress(self.mask[tokens - array.shape[axis] :], axis)
        return array


def cases_of(graph: FuncOp, pipeline: PipelineOp) -> list[Case]:
    """The inputs to try, the ordinary first; the same each time."""
    sizes = sizes_of(graph, pipeline)
    found = [Case(name, inputs_at(graph, chosen)) for name, chosen in sizes.items()]
    ordinary = found[0].inputs
    for name, change in FLOATS.items():
        changed = with_floats(ordinary, change)
        found += [Case(name, changed)] if _differ(changed, ordinary) else []
    first = next((case for case in found if case.name == EMPTY_PAST), found[0])
    for name, mask in MASKS.items():
        inputs = first.inputs if mask is _left_padded else ordinary
        found += _masked(name, mask, inputs, token_axes(graph))
    return found


def token_axes(graph: FuncOp) -> dict[str, list[int]]:
    """The axes of each result that may count tokens: those behind the first that vary."""
    dims = [dims_of(tensor_type(value)) for value in return_of(graph).operands]
    axes = [[a for a, dim in enumerate(each) if a > 0 and dim.as_int() is None] for each in dims]
    return dict(zip(result_names(graph), axes, strict=True))


def seeded_inputs(graph: FuncOp, pipeline: PipelineOp) -> Values:
    """Inputs of a graph that are the same each time, small, and mean something to a model."""
    return inputs_at(graph, next(iter(sizes_of(graph, pipeline).values())))


def inputs_at(graph: FuncOp, sizes: Sizes) -> Values:
    """Such inputs, where symbols have these sizes."""
    inputs: dict[str, Array] = {}
    for name, argument in zip(argument_names(graph), graph.args, strict=True):
        kind = tensor_type(argument)
        shape = tuple(dim.evaluate(sizes) for dim in dims_of(kind))
        inputs[name] = seeded_value(name, dtype_of(kind.element_type), shape, sizes)
    return inputs


def seeded_value(
    name: str, dtype: np.dtype[np.generic], shape: tuple[int, ...], sizes: Mapping[str, int]
) -> Array:
    """An input by its name: masks are ones, positions count on, the rest is random."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    if _is_float(dtype):
        return (random.standard_normal(shape) * 0.5).astype(dtype)
    if "mask" in name or dtype.kind == "b":
        return np.ones(shape, dtype)
    if "position" in name:
        past = next((size for symbol, size in sizes.items() if symbol.startswith("past")), 0)
        return np.broadcast_to(np.arange(past, past + shape[-1]), shape).astype(dtype)
    return random.integers(0, TYPES if "token_type" in name else IDS, shape).astype(dtype)


def with_floats(inputs: Values, change: Callable[[Array], Array]) -> Values:
    """The inputs, their floats changed."""
    return {n: change(a) if _is_float(a.dtype) else a for n, a in inputs.items()}


def _is_float(dtype: np.dtype[np.generic]) -> bool:
    return dtype.kind == "f" or dtype.name == "bfloat16"


def _masked(
    name: str, mask: Callable[[int], Kept], inputs: Values, axes: Mapping[str, Sequence[int]]
) -> list[Case]:
    """The case of a mask; none where the graph has no mask, or one of a single token."""
    masks = [n for n, a in inputs.items() if "mask" in n and a.ndim > 1 and not _is_float(a.dtype)]
    tokens = inputs[masks[0]].shape[-1] if masks else 0
    if tokens < 2:
        return []
    kept = mask(tokens)
    changed = {n: np.where(kept, inputs[n], 0).astype(inputs[n].dtype) for n in masks}
    return [Case(name, {**inputs, **changed}, kept, axes)]


def _denormal(array: Array) -> Array:
    return (array.astype(np.float64) * DENORMAL).astype(array.dtype)


def _large(array: Array) -> Array:
    """Half precision holds no such numbers: there it is a number whose square it holds."""
    scale = LARGE if array.dtype != np.float16 else LARGE**0.5
    return (array.astype(np.float64) * scale).astype(array.dtype)


FLOATS: Final[Mapping[str, Callable[[Array], Array]]] = {"denormal": _denormal, "large": _large}
"""What becomes of floats."""


def _left_padded(tokens: int) -> Kept:
    return np.arange(tokens) >= tokens // 2


def _right_padded(tokens: int) -> Kept:
    return np.arange(tokens) < tokens - max(1, tokens // 4)


def _one_token(tokens: int) -> Kept:
    return np.arange(tokens) == tokens - 1


def _holes(tokens: int) -> Kept:
    kept = np.random.default_rng(tokens).random(tokens) < 0.5
    kept[-1] = True
    return kept


MASKS: Final[Mapping[str, Callable[[int], Kept]]] = {
    "mask left padded": _left_padded,
    "mask right padded": _right_padded,
    "mask one token": _one_token,
    "mask with holes": _holes,
}
"""Which of the tokens count."""


def _differ(left: Values, right: Values) -> bool:
    return any(not np.array_equal(left[name], right[name]) for name in left)
