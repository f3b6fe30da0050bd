"""Which share of a model's floating-point operations is lifted out of the `onnx` dialect."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from xdsl.dialects.builtin import AnyFloat, ModuleOp
from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects.dims import Dim, dims_of
from mllm_compiler.dialects.types import ranked
from mllm_compiler.hal import cost_of
from mllm_compiler.passes.graphs import graphs, pipeline_of, symbol_bound

LENGTH = 256
"""Symbols count with their bound, but at most with this."""

_MOVES = """
cast constantofshape expand flatten gather gathernd identity pad range reshape scatternd shape slice
split squeeze tile transpose unsqueeze where concat constant
"""
MOVES = frozenset(_MOVES.split())
"""Operators of ONNX that move data and compute nothing."""

_PRODUCTS = """
matmul gemm matmulinteger qlinearmatmul microsoft.matmulnbits microsoft.qgemm microsoft.fusedmatmul
microsoft.dynamicquantizematmul microsoft.matmulintegertofloat
"""
PRODUCTS = frozenset(_PRODUCTS.split())
"""Operators of ONNX that multiply matrices, of real numbers or of codes."""

CONVOLUTIONS = {"conv": 1, "convinteger": 1, "qlinearconv": 3}
"""Operators of ONNX that convolve, and which operand their filters are."""

Env = Mapping[str, int]


def lifted_share(module: ModuleOp) -> float:
    """The share of floating-point operations that is not left in `onnx`.

    An operator of ONNX that computes counts at least one, also where its type is not known yet, so
    that the share is 1 only where none is left.
    """
    bounds = pipeline_of(module).bound_of
    lifted = left = 0
    for graph in graphs(module):
        for op in graph.walk():
            dialect, _, name = op.name.partition(".")
            if dialect == "onnx":
                left += _left(op, name.lower(), bounds)
            elif op.results:
                lifted += cost_of(op, sizes_of(op, bounds)).flops
    return 1.0 if left == 0 else lifted / (lifted + left)


def _left(op: Operation, name: str, bounds: Env) -> int:
    if not op.results or name in MOVES:
        return 0
    kind = ranked(op.results[0])
    if kind is None:
        return 1
    elements = max(1, prod(_extents(op.results[0], bounds)))
    if name in PRODUCTS:
        return 2 * elements * (_extents(op.operands[0], bounds) or (1,))[-1]
    if name in CONVOLUTIONS:
        return 2 * elements * prod(_extents(op.operands[CONVOLUTIONS[name]], bounds)[1:])
    return elements if isinstance(kind.element_type, AnyFloat) else 0


def sizes_of(op: Operation, bounds: Env) -> dict[str, int]:
    """The values of the symbols of an op: their bounds, but at most `LENGTH`."""
    symbols = {
        s for value in (*op.operands, *op.results) for d in _dims(value) for s in d.symbols()
    }
    return {symbol: min(LENGTH, symbol_bound(symbol, dict(bounds))) for symbol in symbols}


def _extents(value: SSAValue, bounds: Env) -> tuple[int, ...]:
    known = {
        s: min(LENGTH, symbol_bound(s, dict(bounds))) for d in _dims(value) for s in d.symbols()
    }
    return tuple(1 if d.unknown else max(1, d.evaluate(known)) for d in _dims(value))


def _dims(value: SSAValue) -> tuple[Dim, ...]:
    kind = ranked(value)
    return () if kind is None else tuple(dims_of(kind))
