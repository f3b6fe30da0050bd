"""How many floating-point operations a module does, and which share of them is lifted.

A contraction counts a multiplication and an addition for each product, everything else that
computes counts one for each element of its result; moving data counts nothing. What has no type yet
counts one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from math import prod

from xdsl.dialects.builtin import AnyFloat, ModuleOp
from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects.dims import Dim, dims_of
from mllm_compiler.dialects.types import ranked
from mllm_compiler.passes.graphs import graphs, pipeline_of, symbol_bound

LENGTH = 256
"""Symbols count with their bound, but at most with this."""

_MOVES = """
weight constant reshape transpose concat slice broadcast gather embedding pad iota kv_append kv_view
token_gather cast select resize alias copy expand squeeze unsqueeze shape flatten identity split
gathernd tile range constantofshape where kv_store scatter
"""
MOVES = frozenset(_MOVES.split())
"""Operations, without their dialect, that compute nothing."""

Env = Mapping[str, int]


def flops_by_dialect(module: ModuleOp) -> dict[str, int]:
    """The floating-point operations of each dialect, at bounded symbol values."""
    bounds = pipeline_of(module).bound_of
    counts: Counter[str] = Counter()
    for graph in graphs(module):
        for op in graph.walk():
            dialect, _, name = op.name.partition(".")
            if op is not graph and dialect != "func":
                counts[dialect] += _flops(op, name.lower(), bounds)
    return dict(counts)


def lifted_share(module: ModuleOp) -> float:
    """The share of the floating-point operations that is not left in the `onnx` dialect."""
    counts = flops_by_dialect(module)
    total = sum(counts.values())
    return 1.0 if total == 0 else 1.0 - counts.get("onnx", 0) / total


def _flops(op: Operation, name: str, bounds: Env) -> int:
    if not op.results or name in MOVES:
        return 0
    if ranked(op.results[0]) is None:
        return 1
    if not _is_float(op.results[0]):
        return 0
    elements = _elements(op.results[0], bounds)
    count = CONTRACTIONS.get(name)
    return count(op, elements, bounds) if count else elements


def _by_last_dim(op: Operation, elements: int, bounds: Env) -> int:
    return 2 * elements * (_extents(op.operands[0], bounds) or (1,))[-1]


def _by_weight(op: Operation, elements: int, bounds: Env) -> int:
    return 2 * elements * prod(_extents(op.operands[1], bounds)[1:])


def _attention(op: Operation, elements: int, bounds: Env) -> int:
    keys = _extents(op.operands[1], bounds)
    tokens = keys[-2] if len(keys) == 4 else keys[1]
    return 4 * elements * tokens


def _mlp(op: Operation, elements: int, bounds: Env) -> int:
    """Two or three matrix products over the same tokens."""
    tokens = elements // max(1, _extents(op.results[0], bounds)[-1])
    matrices = [_extents(value, bounds) for value in op.operands[1:]]
    return 2 * tokens * sum(prod(shape) for shape in matrices if len(shape) == 2)


CONTRACTIONS: dict[str, Callable[[Operation, int, Env], int]] = {
    "linear": _by_last_dim,
    "matmul": _by_last_dim,
    "gemm": _by_last_dim,
    "conv": _by_weight,
    "patch_embed": _by_weight,
    "attention": _attention,
    "cross_attn": _attention,
    "mlp": _mlp,
    "gated_mlp": _mlp,
}
"""How operations count that multiply and add."""


def _is_float(value: SSAValue) -> bool:
    kind = ranked(value)
    return kind is not None and isinstance(kind.element_type, AnyFloat)


def _elements(value: SSAValue, bounds: Env) -> int:
    return prod(_extents(value, bounds))


def _extents(value: SSAValue, bounds: Env) -> tuple[int, ...]:
    kind = ranked(value)
    return () if kind is None else tuple(_extent(dim, bounds) for dim in dims_of(kind))


def _extent(dim: Dim, bounds: Env) -> int:
    if dim.unknown:
        return 1
    env = {symbol: min(LENGTH, symbol_bound(symbol, dict(bounds))) for symbol in dim.symbols()}
    return max(1, dim.evaluate(env))
