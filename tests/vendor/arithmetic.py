"""How many floating-point operations a vendor's operator is, in every lowered dialect.

As `hal.cost` counts ops of mllm: two for each product of a contraction, one for each element of
what else computes, none for what moves or is chosen; whole numbers and booleans do not count.
"""

from __future__ import annotations

from math import prod

from xdsl.ir import Operation

from mllm_compiler.dialects.types import element_of, extents, is_float

PRODUCTS = {"fully_connected", "mat_mul", "batch_matmul", "MatMul"}
CONVOLUTIONS = {"conv2d", "depth_wise_conv2d", "conv_2d", "depthwise_conv_2d"}
"""Results have channels last."""

REDUCTIONS = ("reduce", "Reduce", "mean", "sum", "pool", "Pool", "MaxPool", "AveragePool")
EACH = {"rms_norm": 4, "layer_norm": 8, "LayerNormalization": 8, "softmax": 5, "Softmax": 5}
EACH |= {"rotary_embedding": 6}
"""Operations for each element of the result."""

MOVES = {
    *("reshape", "transpose", "concat", "concatenation", "strided_slice", "gather", "tile", "pad"),
    *("padv2", "split", "broadcast_to", "cast", "select_v2", "element_wise_select", "Where"),
    *("Reshape", "Transpose", "Concat", "Slice", "Gather", "Expand", "Pad", "Split", "Cast"),
}
CODES = ("i8", "ui8", "i16", "ui16")


def flops(op: Operation) -> int:
    """The operations of one operator; its shapes are static."""
    name = op.name.partition(".")[2]
    made = [r for r in op.results if is_float(element_of(r)) or str(element_of(r)) in CODES]
    if not made or name in MOVES:
        return 0
    elements = sum(prod(extents(r)) for r in made)
    if name in PRODUCTS:
        return 2 * elements * extents(op.operands[0])[-1]
    if name in CONVOLUTIONS:
        return 2 * elements * prod(extents(op.operands[1])) // extents(made[0])[-1]
    if name == "Conv":
        return 2 * elements * prod(extents(op.operands[1])[1:])
    if name.startswith(REDUCTIONS):
        return prod(extents(op.operands[0]))
    return EACH.get(name, 1) * elements
