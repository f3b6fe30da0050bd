"""Attention with other operands."""

from __future__ import annotations

from typing import TypeVar

from xdsl.ir import SSAValue

from mllm_compiler.dialects.mllm import AttentionInterface, CachedAttentionOp

AttentionT = TypeVar("AttentionT", bound=AttentionInterface | CachedAttentionOp)


def with_operands(op: AttentionT, **operands: SSAValue | None) -> AttentionT:
    """The same attention with some operands, by name, replaced or left out.

    It stands in no block yet.
    """
    names = [name for name, _ in op.get_irdl_definition().operands]
    properties = {k: v for k, v in op.properties.items() if k != "operandSegmentSizes"}
    made = type(op).build(
        operands=[operands[n] if n in operands else getattr(op, n) for n in names],
        properties=properties,
        result_types=[r.type for r in op.results],
    )
    made.location = op.location
    return made
