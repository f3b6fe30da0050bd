"""The version of each operator: the least whose kernels know the types and options that it has."""

from __future__ import annotations

from typing import Final

from mllm_compiler.dialects.tfl import (
    BroadcastToOp,
    DequantizeOp,
    FullyConnectedOp,
    PseudoQconstOp,
    TflOp,
    TransposeOp,
)
from mllm_compiler.dialects.tfl.encoded import BITS, operator
from mllm_compiler.dialects.types import element_of, i2, i4, rank_of

CODED: Final[dict[str, tuple[int, int]]] = {
    "quantize": (1, 2),
    "dequantize": (2, 3),
    "add": (2, 3),
    "sub": (2, 5),
    "mul": (2, 4),
    "mean": (2, 3),
    "softmax": (2, 3),
    "logistic": (2, 3),
    "tanh": (2, 3),
    "batch_matmul": (2, 3),
    "conv_2d": (3, 4),
    "depthwise_conv_2d": (3, 5),
    "max_pool_2d": (2, 3),
    "average_pool_2d": (2, 3),
    "reduce_max": (2, 3),
    "reduce_min": (2, 3),
    "reshape": (1, 1),
    "transpose": (2, 5),
    "concatenation": (2, 3),
    "split": (2, 4),
    "strided_slice": (2, 4),
    "broadcast_to": (2, 3),
    "gather": (2, 4),
}
"""Versions on codes of 8 and of 16 bits; of an operator that is not listed, 2."""


def version_of(op: TflOp) -> int:
    """The version, after TensorFlow's `op_version.cc`; a runtime that knows a lower one refuses."""
    bits = BITS.get(element_of(op.operands[0] if isinstance(op, DequantizeOp) else op.results[0]))
    match op:
        case FullyConnectedOp():
            return _fully_connected(op, bits)
        case TransposeOp() if rank_of(op.x) > 4:
            return 6 if rank_of(op.x) == 6 else 4 if bits != 16 else 5
        case DequantizeOp() if isinstance(op.x.owner, PseudoQconstOp):
            return 6 if element_of(op.x) == i4 else 5
        case DequantizeOp() if str(element_of(op.x)) == "f16":
            return 3
        case _ if bits is not None and (op.scale is not None or isinstance(op, DequantizeOp)):
            return CODED.get(operator(op), (2, 2))[bits == 16]
        case BroadcastToOp():
            return 2
        case _:
            return 1


def _fully_connected(op: FullyConnectedOp, bits: int | None) -> int:
    narrow = element_of(op.weights) == i4
    if bits is not None:
        return (10 if narrow else 4) if bits == 8 else (13 if narrow else 11)
    if isinstance(op.weights.owner, PseudoQconstOp):
        return 14 if element_of(op.weights) == i2 else 12
    if op.bias is None:
        return 6
    return 5 if op.keep_num_dims else 1
