"""`fuse-rope`: rotary positions become part of the product that makes queries and keys.

    %q, %k, %v = mllm.qkv %x, %w {heads = 4 : i64, kv_heads = 2 : i64} : ...
    %a = mllm.rope %q, %positions, %frequencies {heads = 4 : i64} : ...
    %b = mllm.rope %k, %positions, %frequencies {heads = 2 : i64} : ...

becomes

    %a, %b, %v = mllm.qkv %x, %w rope(%positions : tensor<1x3xi64>) inv_freq(%frequencies : ...)
      {heads = 4 : i64, kv_heads = 2 : i64} : ...

where nothing else reads %q and %k, and both turn alike. Exact.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from mllm_compiler.dialects.mllm import QkvOp, RopeOp
from mllm_compiler.passes.graphs import brought_before, users
from mllm_compiler.passes.rewrite import On, rewrite


def _rope(op: QkvOp, rewriter: PatternRewriter) -> None:
    query, key = _turn(op.q), _turn(op.k)
    if query is None or key is None or op.positions is not None or not _alike(query, key):
        return
    counts = (query.heads.value.data, key.heads.value.data)
    if counts != (op.head_count, op.kv_head_count):
        return
    if not all(brought_before(value, op) for value in (query.positions, query.inv_freq)):
        return
    made = QkvOp(
        op.x,
        op.weight,
        op.bias,
        results=[query.result.type, key.result.type, op.v.type],
        heads=op.head_count,
        kv_heads=op.kv_head_count,
        positions=query.positions,
        inv_freq=query.inv_freq,
        interleaved=bool(query.interleaved.value.data),
    )
    rewriter.replace(op, made)
    for turn, result in ((query, made.q), (key, made.k)):
        rewriter.replace(turn, [], [result])


def _turn(value: SSAValue) -> RopeOp | None:
    """The rotation that is all that reads a value."""
    readers = list(users(value))
    turn = readers[0] if len(readers) == 1 else None
    return turn if isinstance(turn, RopeOp) and turn.x is value else None


def _alike(a: RopeOp, b: RopeOp) -> bool:
    same = a.positions is b.positions and a.inv_freq is b.inv_freq
    return same and a.interleaved == b.interleaved


@dataclass(frozen=True)
class FuseRope(ModulePass):
    """Turns queries and keys where they are made."""

    name = "fuse-rope"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites to a fixpoint."""
        rewrite(op, On(QkvOp, _rope))
