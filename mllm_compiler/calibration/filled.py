"""The inputs of a graph that follow from the others: masks, positions, an empty cache."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from xdsl.dialects.func import FuncOp

from mllm_compiler.dialects.dims import dims_of
from mllm_compiler.dialects.types import dtype_of, tensor_type
from mllm_compiler.passes.graphs import argument_names
from mllm_compiler.reference import Array


def filled(graph: FuncOp, given: Mapping[str, Array]) -> dict[str, Array]:
    """All inputs of a graph: those given, ones for masks, running positions, zeros for the rest.

    A past that is not given is empty.
    """
    kinds = {
        name: tensor_type(value)
        for name, value in zip(argument_names(graph), graph.args, strict=True)
    }
    sizes: dict[str, int] = {}
    for name, array in given.items():
        for dim, extent in zip(dims_of(kinds[name]), array.shape, strict=True):
            if (symbol := dim.as_symbol()) is not None:
                sizes.setdefault(symbol, extent)
    symbols = {s for kind in kinds.values() for dim in dims_of(kind) for s in dim.symbols()}
    tokens = next((a.shape[1] for n, a in given.items() if n.startswith("input")), 1)
    for symbol in symbols - sizes.keys():
        sizes[symbol] = 0 if "past" in symbol else tokens if "total" in symbol else 1
    made = dict(given)
    for name, kind in kinds.items():
        shape = tuple(dim.evaluate(sizes) for dim in dims_of(kind))
        dtype = dtype_of(kind.element_type)
        if name in made:
            continue
        if "mask" in name:
            made[name] = np.ones(shape, dtype)
        elif "position" in name:
            made[name] = np.broadcast_to(np.arange(shape[-1]), shape).astype(dtype)
        else:
            made[name] = np.zeros(shape, dtype)
    return made
