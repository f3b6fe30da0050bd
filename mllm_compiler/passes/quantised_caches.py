"""What a quantised module says of its caches: bits, and how far keys reached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from mllm_compiler.dialects.mllm import CachedAttentionOp, WeightOp
from mllm_compiler.dialects.mllm.quant import value_of
from mllm_compiler.passes.graphs import block_of, graphs, location_of
from mllm_compiler.passes.matching import made_by
from mllm_compiler.weights import WeightStore


@dataclass(frozen=True, kw_only=True)
class QuantisedCache:
    """A cache that attention reads by codes.

    Attributes:
        name: `graph:node` of the attention.
        bits: Of the codes of its older tokens.
        key_scales: The largest scale of keys in each head, over its channels.
    """

    name: str
    bits: int
    key_scales: tuple[float, ...]


def quantised_caches(module: ModuleOp, store: WeightStore) -> Iterator[QuantisedCache]:
    """The quantised caches of all graphs, in order."""
    for graph in graphs(module):
        for op in block_of(graph).ops:
            if not isinstance(op, CachedAttentionOp) or op.k_scale is None:
                continue
            scale = made_by(op.k_scale, WeightOp)
            if scale is None:
                continue
            blob = scale.value
            array = store.array(blob.digest.data, str(blob.element), blob.dims)
            yield QuantisedCache(
                name=f"{graph.sym_name.data}:{location_of(op)}",
                bits=value_of(op.cache_bits) or 0,
                key_scales=tuple(float(s) for s in array.max(1)),
            )
