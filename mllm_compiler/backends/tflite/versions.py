"""The version of each operator: the least whose kernels know the types and options that it has."""

from __future__ import annotations

from mllm_compiler.dialects.tfl import (
    BroadcastToOp,
    DequantizeOp,
    FullyConnectedOp,
    PseudoQconstOp,
    TflOp,
    TransposeOp,
)
from mllm_compiler.dialects.types import element_of, i2, rank_of


def version_of(op: TflOp) -> int:
    """The version, after TensorFlow's `op_version.cc`; a runtime that knows a lower one refuses."""
    match op:
        case FullyConnectedOp():
            return _fully_connected(op)
        case TransposeOp():
            rank = rank_of(op.x)
            return 6 if rank == 6 else 4 if rank == 5 else 1
        case DequantizeOp() if str(element_of(op.x)) == "f16":
            return 3
        case BroadcastToOp():
            return 2
        case _:
            return 1


def _fully_connected(op: FullyConnectedOp) -> int:
    if isinstance(op.weights.owner, PseudoQconstOp):
        return 14 if element_of(op.weights) == i2 else 12
    if op.bias is None:
        return 6
    return 5 if op.keep_num_dims else 1
