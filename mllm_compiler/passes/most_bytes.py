"""The bytes that a tensor can take: those at the bounds of its symbols."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final

from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from mllm_compiler.dialects.types import ranked, shape_of
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.graphs import argument_names, location_of, symbol_bound
from mllm_compiler.weights import DTYPES

ADDRESSABLE: Final = 1 << 47
"""Bytes that a process of a 64-bit system can address."""

MOST_DIMS: Final = 8
"""Of a tensor of the runtime: `MLLM_MAX_RANK` of `mllm.h`."""


def nbytes(value: SSAValue, bounds: Mapping[str, int]) -> int:
    """The bytes of a tensor with every symbol at its bound.

    Raises:
        CompileError: MLC-R001, the runtime has no such tensors; MLC-R003, a dimension is known only
            when the model runs; MLC-R006, there are more bytes than a process can address.
    """
    kind = ranked(value)
    dtype = None if kind is None else DTYPES.get(str(kind.element_type))
    if kind is None or dtype is None or kind.get_num_dims() > MOST_DIMS:
        message = f"the runtime has no tensors of type {value.type}"
        remedy = "use the target numpy, or change the type in the model"
        raise _refused("MLC-R001", message, value, remedy)
    dims = shape_of(value)
    shape = ", ".join(map(str, dims))
    if any(d.unknown for d in dims):
        message = f"the shape [{shape}] depends on data, memory cannot be planned"
        raise _refused("MLC-R003", message, value, "use the target numpy")
    symbols = {s for d in dims for s in d.symbols()}
    largest = {s: symbol_bound(s, dict(bounds)) for s in symbols}
    size = prod(d.upper(largest) for d in dims) * dtype.itemsize
    if size > ADDRESSABLE:
        message = f"a tensor of shape [{shape}] takes {size} bytes at its bound"
        raise _refused("MLC-R006", message, value, "lower the bounds in [dims] of model.toml")
    return size


def _refused(code: str, message: str, value: SSAValue, remedy: str) -> CompileError:
    owner = value.owner
    place = location_of(owner) if isinstance(owner, Operation) else "input"
    if isinstance(value, BlockArgument) and isinstance(graph := owner.parent_op(), FuncOp):
        place = f"input '{argument_names(graph)[value.index]}'"
    return CompileError(code, message, location=place, remedy=remedy)
