"""Feed-forward blocks as the products and activations that they are made of."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.rewriter import Rewriter

from mllm_compiler.dialects.mllm import (
    BinaryKind,
    BinaryOp,
    GatedMlpOp,
    LinearOp,
    MlpOp,
    UnaryKind,
    UnaryOp,
)
from mllm_compiler.passes.graphs import block_of
from mllm_compiler.passes.rewrite import retype


def take_mlps_apart(graph: FuncOp) -> None:
    """Replaces each feed-forward block by its parts."""
    for op in list(block_of(graph).ops):
        if isinstance(op, GatedMlpOp):
            put_in_place(op, _gated(op))
        elif isinstance(op, MlpOp):
            put_in_place(op, _plain(op))


def _gated(op: GatedMlpOp) -> list[Operation]:
    gate, up = LinearOp(op.x, op.gate), LinearOp(op.x, op.up)
    active = UnaryOp(UnaryKind(op.activation.data), gate.result)
    product = BinaryOp(BinaryKind.MUL, active.result, up.result)
    return [gate, active, up, product, LinearOp(product.result, op.down)]


def _plain(op: MlpOp) -> list[Operation]:
    first = LinearOp(op.x, op.w1, op.b1)
    active = UnaryOp(UnaryKind(op.activation.data), first.result)
    return [first, active, LinearOp(active.result, op.w2, op.b2)]


def put_in_place(old: Operation, new: Sequence[Operation]) -> None:
    """Replaces an op by ops at its place, which take its location and its type."""
    for op in new:
        op.location = old.location
    retype(new[-1], old)
    Rewriter.replace_op(old, new)
