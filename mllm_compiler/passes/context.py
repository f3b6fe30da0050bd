"""The context of a compilation: xDSL's, and the store of the model's weights."""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.context import Context

from mllm_compiler.weights import WeightStore


@dataclass
class CompileContext(Context):
    """What passes are given.

    Attributes:
        store: Where the bytes of weights lie, and where passes add those that they make.
    """

    store: WeightStore = field(default_factory=WeightStore)


def store_of(ctx: Context) -> WeightStore:
    """The store of a compilation; a bare context (`mllm-opt` on a dump) has an empty one."""
    return ctx.store if isinstance(ctx, CompileContext) else WeightStore()
