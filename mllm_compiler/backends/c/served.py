"""Entries of any shape, as the C runtime serves them by graphs of static shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.backends.buckets import Dims, bucketed_of
from mllm_compiler.backends.c.program import NO_SLOT, Buckets
from mllm_compiler.backends.c.table import EntryTable, Tensor


@dataclass(frozen=True)
class Served:
    """An entry that has no stages.

    Attributes:
        name: Its name.
        role: Its role in the pipeline.
        inputs: What it takes, without padding.
        outputs: What it gives.
        variants: The entries that serve it.
        buckets: The sizes of each.
    """

    name: str
    role: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    variants: tuple[EntryTable, ...]
    buckets: Buckets


def served_of(module: ModuleOp, entries: Sequence[EntryTable]) -> tuple[Served, ...]:
    """The entries that variants among some entries serve."""
    by_name = {entry.name: entry for entry in entries}
    made: list[Served] = []
    for name, bucketed in bucketed_of(module).items():
        variants = tuple(by_name[variant] for variant in bucketed.variants)
        symbols = {s: s in bucketed.left for s in bucketed.least}
        sizes = [[size_of[s] for s in symbols] for size_of in bucketed.variants.values()]
        served = Served(
            name=name,
            role=variants[0].role,
            inputs=_real(bucketed.inputs, [v.inputs for v in variants], f"{name} input"),
            outputs=_real(bucketed.outputs, [v.outputs for v in variants], f"{name} output"),
            variants=variants,
            buckets=Buckets(symbols=symbols, sizes=sizes),
        )
        made.append(served)
    return tuple(made)


def _real(dims: Dims, padded: Sequence[Sequence[Tensor]], owner: str) -> tuple[Tensor, ...]:
    """The tensors without padding; they take at most what the largest graph has for them."""
    return tuple(
        replace(
            tensor,
            dims=dims[tensor.name],
            offset=NO_SLOT,
            max_bytes=max(side[place].max_bytes for side in padded),
            owner=owner,
        )
        for place, tensor in enumerate(padded[0])
        if tensor.name in dims
    )
