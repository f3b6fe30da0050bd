"""`host-first`: what the NPU lacks goes before everything that it computes; exact.

    %a = tfl.mul %x, %x : ..
    %m = tfl.logical_and %p, %q : ..
    %b = tfl.cast %m : ..
->
    %m = tfl.logical_and %p, %q : ..
    %a = tfl.mul %x, %x : ..
    %b = tfl.cast %m : ..

LiteRT cuts a graph at each operator that its plugin for MediaTek leaves to the CPU, in the order of
the file: look-ups, and what computes on whole numbers and booleans alone, come first, so that one
network has all reals; what the plugin takes of these comes last. An operator for the CPU between
two on reals is refused; behind them all it may stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from mllm_compiler.dialects.mllm import ConstantOp, WeightOp
from mllm_compiler.dialects.neuron.base import TENSORS
from mllm_compiler.dialects.tfl import PseudoQconstOp, TflOp
from mllm_compiler.dialects.tfl.encoded import encoding
from mllm_compiler.dialects.types import element_of, is_float
from mllm_compiler.errors import CompileError
from mllm_compiler.hal import target
from mllm_compiler.passes.graphs import block_of, graphs, location_of, users


@dataclass(frozen=True)
class HostFirst(ModulePass):
    """Orders the operators of every graph."""

    name = "host-first"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Moves operators in place.

        Raises:
            CompileError: MLC-R001, an operator for the CPU stands between two for the NPU.
        """
        for graph in graphs(op):
            behind = _behind(graph)
            block, ops = block_of(graph), list(block_of(graph).ops)
            first = next(filter(_is_network, ops), None)
            if first is None:
                continue
            data = [one for one in ops if isinstance(one, WeightOp | ConstantOp)]
            host = [one for one in ops if isinstance(one, TflOp) and not _is_network(one)]
            host = [one for one in host if one not in behind]
            joining = _joining(host)
            kept = {*data, *host} - joining
            for one in [o for o in ops if o in kept] + [o for o in ops if o in joining]:
                one.detach()
                block.insert_op_before(one, first)


def is_taken(op: Operation) -> bool:
    """Whether the plugin takes an operator into a network."""
    if isinstance(op, PseudoQconstOp):
        return all(map(is_taken, users(op.weights)))
    if not isinstance(op, TflOp) or op.operator() not in target("neuron").operators:
        return False
    values = [v for v in (*op.operands, *op.results) if not isinstance(v.owner, PseudoQconstOp)]
    return all(element_of(v) in TENSORS.values() or encoding(v) is not None for v in values)


def _is_network(op: Operation) -> bool:
    """Whether the plugin takes an operator on reals, or on their codes."""
    values = (*op.operands, *op.results)
    return is_taken(op) and any(is_float(element_of(v)) or encoding(v) is not None for v in values)


def _joining(host: Sequence[Operation]) -> set[Operation]:
    """Those of the operators before a network that the plugin takes too, and the CPU reads not.

    Between two operators for the CPU they would be a network of their own.
    """
    needed, joining = set[SSAValue](), set[Operation]()
    for op in reversed(host):
        if is_taken(op) and needed.isdisjoint(op.results):
            joining.add(op)
        else:
            needed.update(op.operands)
    return joining


def _behind(graph: FuncOp) -> set[Operation]:
    """The operators for the CPU that read what the NPU computes."""
    reads: dict[SSAValue, Operation | None] = {}
    behind: set[Operation] = set()
    for op in block_of(graph).ops:
        if not isinstance(op, TflOp) or isinstance(op, PseudoQconstOp):
            continue
        read = [reads[v] for v in op.operands if v in reads]
        left = next(filter(None, read), None)
        if not _is_network(op):
            behind |= {op} if read else set()
            reads.update((r, left or op) for r in op.results if read)
            continue
        if left is not None:
            raise CompileError(
                "MLC-R001",
                f"'{left.name}' has no home on 'neuron': it is left to the CPU between operators "
                "of the NPU",
                location=location_of(left),
                remedy="replace the op in the model, or use the target tflite",
            )
        reads.update((r, None) for r in op.results)
    return behind
