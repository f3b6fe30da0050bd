"""`common-subexpressions`: what is computed twice is computed once; exact.

    %0 = mllm.transpose %x {perm = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
    %1 = mllm.transpose %x {perm = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
    %2 = mllm.binary add %0, %1 : (tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>

becomes

    %0 = mllm.transpose %x {perm = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
    %2 = mllm.binary add %0, %0 : (tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>

Two ops are one where they are of one kind and have the same operands, properties and types; only
ops without effects are. The pass is xDSL's.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.transforms.common_subexpression_elimination import cse


@dataclass(frozen=True)
class CommonSubexpressions(ModulePass):
    """Merges ops that compute the same."""

    name = "common-subexpressions"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Walks each graph once."""
        cse(op)
