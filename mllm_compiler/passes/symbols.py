"""The symbols of dims in a graph: which an op has, and others in their place."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from mllm_compiler.dialects.dims import Dim, DimsAttr, dims_of, tensor_of
from mllm_compiler.dialects.types import ranked
from mllm_compiler.passes.graphs import block_of


def symbols_of(op: Operation) -> set[str]:
    """The symbols in the types of an op's results and in its properties."""
    kinds = [kind for result in op.results if (kind := ranked(result)) is not None]
    dims = [dim for kind in kinds for dim in dims_of(kind)]
    dims += [d for a in op.properties.values() if isinstance(a, DimsAttr) for d in a.data]
    return {symbol for dim in dims if not dim.unknown for symbol in dim.symbols()}


def substitute(graph: FuncOp, values: Mapping[str, Dim]) -> None:
    """Replaces symbols by dims in every type and expression of a graph."""
    for argument in block_of(graph).args:
        _retype(argument, values)
    for op in block_of(graph).ops:
        substitute_in(op, values)
    graph.update_function_type()


def substitute_in(op: Operation, values: Mapping[str, Dim]) -> None:
    """Replaces symbols by dims in the types of an op's results and in its properties."""
    for result in op.results:
        _retype(result, values)
    for name, attribute in op.properties.items():
        if isinstance(attribute, DimsAttr):
            op.properties[name] = DimsAttr(tuple(d.substitute(values) for d in attribute.data))


def _retype(value: SSAValue, values: Mapping[str, Dim]) -> None:
    kind = ranked(value)
    if kind is not None and isinstance(kind.encoding, DimsAttr):
        dims = [d.substitute(values) for d in kind.encoding.data]
        Rewriter.replace_value_with_new_type(value, tensor_of(kind.element_type, dims))
