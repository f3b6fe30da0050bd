"""`approximate-gelu`: GELU becomes its approximation by a hyperbolic tangent; within 1e-3.

    %y = mllm.unary gelu %x : ..
->
    %y = mllm.unary gelu_tanh %x : ..

as targets compute it that know no other one (Hendrycks and Gimpel 2016); feed-forward blocks with
that activation alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute
from xdsl.passes import ModulePass

from mllm_compiler.dialects.mllm.kinds import (
    Activation,
    ActivationAttr,
    UnaryKind,
    UnaryKindAttr,
)

TANH: Mapping[Attribute, Attribute] = {
    UnaryKindAttr(UnaryKind.GELU): UnaryKindAttr(UnaryKind.GELU_TANH),
    ActivationAttr(Activation.GELU): ActivationAttr(Activation.GELU_TANH),
}


@dataclass(frozen=True)
class ApproximateGelu(ModulePass):
    """Replaces GELU wherever an op names it."""

    name = "approximate-gelu"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrites the properties of ops in place."""
        for inner in op.walk():
            for name, value in inner.properties.items():
                if value in TANH:
                    inner.properties[name] = TANH[value]
