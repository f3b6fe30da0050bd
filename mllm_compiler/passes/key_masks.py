"""Attention with another mask of keys."""

from __future__ import annotations

from typing import TypeVar

from xdsl.ir import SSAValue

from mllm_compiler.dialects.mllm import AttentionInterface, CachedAttentionOp

AttentionT = TypeVar("AttentionT", bound=AttentionInterface | CachedAttentionOp)


def with_key_mask(op: AttentionT, mask: SSAValue | None) -> AttentionT:
    """The same attention under a mask of keys, or none; it stands in no block yet."""
    operands = [
        mask if name == "key_mask" else getattr(op, name)
        for name, _ in op.get_irdl_definition().operands
    ]
    properties = {k: v for k, v in op.properties.items() if k != "operandSegmentSizes"}
    made = type(op).build(
        operands=operands, properties=properties, result_types=[r.type for r in op.results]
    )
    made.location = op.location
    return made
