"""What a quantised module says of its caches: bits, and how far keys reached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.dialects.mllm import CachedAttentionOp, WeightOp
from mllm_compiler.passes.graphs import block_of, graphs, location_of
from mllm_compiler.passes.matching import made_by
from mllm_compiler.weights import WeightStore


@dataclass(frozen=True, kw_only=True)
class QuantisedCache:
    """A cache that attention reads by codes.

    Attributes:
        name: `graph:node` of the attention.
        bits: Of the codes of its older tokens.
        key_scales: The largest scale of keys in each head, over its channels; none with 16 bits.
    """

    name: str
    bits: int
    key_scales: tuple[float, ...]


def quantised_caches(module: ModuleOp, store: WeightStore) -> Iterator[QuantisedCache]:
    """The quantised caches of all graphs, in order."""
    for graph in graphs(module):
        for op in block_of(graph).ops:
            if not isinstance(op, CachedAttentionOp) or op.cache_bits is None:
                continue
            yield QuantisedCache(
                name=f"{graph.sym_name.data}:{location_of(op)}",
                bits=op.cache_bits.value.data,
                key_scales=_largest(op, store),
            )


def _largest(op: CachedAttentionOp, store: WeightStore) -> tuple[float, ...]:
    scale = None if op.k_scale is None else made_by(op.k_scale, WeightOp)
    if scale is None:
        return ()
    blob = scale.value
    array = store.array(blob.digest.data, str(blob.element), blob.dims)
    return tuple(float(s) for s in array.max(1))
