"""`keep-values`: what nodes of the model give becomes results of its graphs, to look at; exact.

    func.func @f(%x: tensor<2x8xf32>) -> tensor<2x4xf32> {
      %0 = mllm.linear %x, %w : (tensor<2x8xf32>, tensor<4x8xf32>) -> tensor<2x4xf32> loc("/fc1")
      %1 = mllm.unary gelu %0 : (tensor<2x4xf32>) -> tensor<2x4xf32> loc("/act")
      func.return %1

becomes, with `nodes = "/fc*"`,

    func.func @f(%x: tensor<2x8xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32> {mllm.name = "/fc1"}) {
      ...
      func.return %1, %0

A result has the name of its node. Entries that were made of a graph stay as they are: whoever calls
them reads what they give by its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from mllm_compiler.dialects.types import element_of, is_float, shape_of
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.graphs import (
    SOURCE,
    VARIANT,
    add_results,
    graphs,
    last_ops,
    result_names,
    return_of,
)


@dataclass(frozen=True)
class KeepValues(ModulePass):
    """Returns values from within graphs.

    Attributes:
        nodes: A pattern of names of nodes, with `*` and `?`.
    """

    name = "keep-values"
    nodes: str = "*"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Adds the results.

        Raises:
            CompileError: `MLC-U018`, the pattern names no node.
        """
        found = [(graph, _values(graph, self.nodes)) for graph in graphs(op)]
        if not any(values for _, values in found):
            raise CompileError(
                "MLC-U018",
                f"no node of the compiled model has a name like '{self.nodes}'",
                location="--keep-values",
                remedy='--dump-dir shows the names of nodes, as loc("...")',
            )
        for graph, values in found:
            if values:
                add_results(graph, values)


def _values(graph: FuncOp, nodes: str) -> Mapping[str, SSAValue]:
    """What the nodes of a pattern give, where it is of real numbers and no result yet."""
    if SOURCE in graph.attributes or VARIANT in graph.attributes:
        return {}
    taken, returned = result_names(graph), set(return_of(graph).operands)
    return {
        name: op.results[0]
        for name, op in last_ops(graph).items()
        if fnmatchcase(name, nodes) and name not in taken and op.results[0] not in returned
        if _is_shown(op.results[0])
    }


def _is_shown(value: SSAValue) -> bool:
    return is_float(element_of(value)) and not any(dim.unknown for dim in shape_of(value))
