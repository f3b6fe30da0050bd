"""`quantise-cache`: attention reads its cache by codes; not exact.

    %y, %k1, %v1 = mllm.cached_attention %q, %k, %v past(%past_k, %past_v) {..}

becomes, where the recipe has a `[cache]`,

    %s = mllm.weight #mllm.blob<.., f16, [2, 64]>
    %y, %k1, %v1 = mllm.cached_attention %q, %k, %v past(%past_k, %past_v)
      k_scale(%s : tensor<2x64xf16>) {.., cache_bits = 8 : i64}

With `bits = 16` there is nothing to calibrate: `cache_bits = 16` says that it holds f16.

Keys have a few loud channels. A channel is divided by the root of its own root mean square on the
calibration data times that of its head: so half of the difference goes into the scale, half stays
in the codes, as `smoothquant` shares it. Those data go through the graph as its caches become
codes: a layer is calibrated on what the quantised ones before it give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, f16
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from mllm_compiler.dialects import store_of
from mllm_compiler.dialects.mllm import BlobAttr, CachedAttentionOp, WeightOp
from mllm_compiler.dialects.mllm.contract import integer
from mllm_compiler.passes.attention_operands import with_operands
from mllm_compiler.passes.calibration_data import needed_inputs
from mllm_compiler.passes.graphs import block_of, graphs, location_of
from mllm_compiler.passes.samples import Samples
from mllm_compiler.quantisation.grid import storable
from mllm_compiler.quantisation.recipe import read_recipe
from mllm_compiler.reference import Array
from mllm_compiler.reference.mllm_attention import split_heads


@dataclass(frozen=True)
class QuantiseCache(ModulePass):
    """Gives each cache that attention appends to the codes of a recipe.

    Attributes:
        recipe: A built-in recipe or a `.toml` file.
        data: A folder of calibration inputs, `GRAPH/NAME.npz`.
    """

    name = "quantise-cache"
    recipe: str = "w8a8"
    data: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Replaces the attention of every graph.

        Raises:
            CompileError: The recipe cannot be used, or data that it needs are not there.
        """
        cache = read_recipe(self.recipe).cache
        for graph in graphs(op) if cache is not None else ():
            ops = [a for a in block_of(graph).ops if isinstance(a, CachedAttentionOp)]
            asking = [a for a in ops if a.cache_bits is None]
            if cache is not None and not cache.needs_data:
                for attention in asking:
                    attention.properties["cache_bits"] = integer(cache.bits)
            elif cache is not None and asking:
                inputs = needed_inputs(self.data, graph.sym_name.data)
                samples = Samples.of(graph, inputs, store_of(ctx), asking)
                _quantise(graph, samples, cache.bits)


def _quantise(graph: FuncOp, samples: Samples, bits: int) -> None:
    for op in list(block_of(graph).ops):
        if not isinstance(op, CachedAttentionOp) or op.cache_bits is not None:
            samples.step(op)
            continue
        made = _with_codes(op, samples, bits)
        Rewriter.replace_op(op, made)
        samples.wanted.discard(op)
        samples.wanted.update(made)
        for part in made:
            samples.step(part)


def _with_codes(op: CachedAttentionOp, samples: Samples, bits: int) -> list[Operation]:
    """The scale that the keys of an attention need, and the attention with it."""
    new = [split_heads(k, op.kv_head_count) for k in samples.of_value(op.k)]
    array = _channels([*new, *samples.of_value(op.past_k)])
    scale = WeightOp(
        BlobAttr.of(samples.frames[0].store.add(array), f16, array.shape),
        f"{location_of(op)}.k_scale",
    )
    scale.location = op.location
    attention = with_operands(op, k_scale=scale.result)
    attention.properties["cache_bits"] = integer(bits)
    return [scale, attention]


def _channels(keys: Sequence[Array]) -> NDArray[np.float16]:
    """[Hkv, D]: the scales of channels of keys [B, Hkv, S, D]."""
    wide = [k.astype(np.float64) for k in keys]
    tokens = max(1, sum(k.shape[0] * k.shape[2] for k in wide))
    square = np.sum([(k * k).sum((0, 2)) for k in wide], 0) / tokens
    scale = (square * square.mean(1, keepdims=True)) ** 0.25
    return storable(scale).astype(np.float16)
