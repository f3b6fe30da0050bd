"""Cutting heads: products lose the rows of those that go, the output is fitted to those that stay.

    %q = mllm.linear %x, %wq    %a = mllm.attention %q, ..    %y = mllm.linear %a, %wo

A cache, and what a first step keeps for one, gets narrower.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from mllm_compiler.dialects.dims import tensor_of
from mllm_compiler.dialects.mllm import (
    AttentionOp,
    BlobAttr,
    KvAppendOp,
    LinearOp,
    ReshapeOp,
    RopeOp,
    TransposeOp,
    WeightOp,
)
from mllm_compiler.dialects.types import element_of, rank_of, shape_of
from mllm_compiler.passes.head_choice import Moments, channels, resolved
from mllm_compiler.passes.head_sites import Array, Site, elements_of, source_of
from mllm_compiler.passes.kept_rows import put_before
from mllm_compiler.passes.matching import made_by
from mllm_compiler.weights import WeightStore


def cut(
    site: Site, kept: list[int], moments: Moments | None, ridge: float, store: WeightStore
) -> None:
    """Replaces an attention and its output by those of the kept groups.

    Args:
        site: The attention and its output.
        kept: The groups that stay, ascending.
        moments: What the output is fitted to; without them it stays as it is for these heads.
        ridge: See `resolved`.
        store: Takes the new weights.
    """
    old, output = site.attention, site.output
    group = old.head_count // site.groups
    heads = [g * group + i for g in kept for i in range(group)]

    def put(op: Operation) -> SSAValue:
        return put_before(old, op).results[0]

    q = _narrowed(old.q, heads, old.head_count, store, put)
    k, v = (_narrowed(x, kept, site.groups, store, put) for x in (old.k, old.v))
    made = AttentionOp(
        q,
        k,
        v,
        heads=len(heads),
        kv_heads=len(kept),
        scale=old.scale_value,
        causal=bool(old.causal.value.data),
        window=None if old.window is None else old.window.value.data,
        key_mask=old.key_mask,
    )
    mixed, columns = put(made), channels(heads, site.width // old.head_count)
    weight, bias = elements_of(output.weight, store), output.bias
    assert weight is not None
    if moments is None:
        weight = np.ascontiguousarray(weight[:, columns])
    else:
        before = 0.0 if bias is None else elements_of(bias, store)
        assert before is not None
        weight, offset = resolved(moments, weight, before, columns, ridge)
        bias = put(_weight(offset.astype(np.float32), output, store))
    fitted = put(_weight(weight.astype(np.float32), output, store))
    y = put_before(output, LinearOp(mixed, fitted, bias))
    output.result.replace_all_uses_with(y.results[0])
    output.detach()
    output.erase()


def _narrowed(
    value: SSAValue,
    kept: list[int],
    heads: int,
    store: WeightStore,
    put: Callable[[Operation], SSAValue],
) -> SSAValue:
    """A value with the channels of some heads alone."""
    append = made_by(value, KvAppendOp)
    if append is not None:
        batch, _, length, size = shape_of(append.past)
        narrow = tensor_of(element_of(append.past), (batch, len(kept), length, size))
        new = _narrowed(append.new, kept, heads, store, put)
        past = Rewriter.replace_value_with_new_type(append.past, narrow)
        made = put(KvAppendOp(past, new, kv_heads=len(kept)))
        append.result.replace_all_uses_with(made)
        append.detach()
        append.erase()
        return made
    rope = made_by(value, RopeOp)
    if rope is not None:
        x = _narrowed(rope.x, kept, heads, store, put)
        turned = bool(rope.interleaved.value.data)
        return put(RopeOp(x, rope.positions, rope.inv_freq, heads=len(kept), interleaved=turned))
    source = source_of(value, store)
    width = shape_of(value)[-1].as_int()
    assert source is not None
    assert width is not None
    linear, start = source
    rows = start + channels(kept, width // heads)
    weight = elements_of(linear.weight, store)
    assert weight is not None
    made = put(_weight(weight[rows], linear, store))
    bias = None if linear.bias is None else elements_of(linear.bias, store)
    short = None if bias is None else put(_weight(bias[rows], linear, store))
    narrow = put(LinearOp(linear.x, made, short))
    _narrow_view(value, narrow, heads, len(kept), put)
    return narrow


def _narrow_view(
    value: SSAValue, narrow: SSAValue, heads: int, kept: int, put: Callable[[Operation], SSAValue]
) -> None:
    """Lets what a first step keeps for its cache, [B, H, T, D] of [B, T, H*D], have fewer heads."""
    for view in [use.operation for use in value.uses]:
        if not isinstance(view, ReshapeOp) or rank_of(view.result) != 4:
            continue
        batch, length, parts, size = shape_of(view.result)
        if parts.as_int() != heads:
            continue
        split = put(ReshapeOp(narrow, (batch, length, kept, size)))
        for turned in [use.operation for use in view.result.uses]:
            if isinstance(turned, TransposeOp):
                made = put(TransposeOp(split, turned.permutation))
                turned.result.replace_all_uses_with(made)


def _weight(array: Array, like: LinearOp, store: WeightStore) -> WeightOp:
    """A weight in the place of one of a product, under its name."""
    named = made_by(like.weight, WeightOp)
    name = None if named is None or named.weight_name is None else named.weight_name.data
    if name is not None and array.ndim == 1:
        name = f"{name.removesuffix('.weight')}.bias"
    element = element_of(like.weight)
    return WeightOp(BlobAttr.of(store.add(array), element, array.shape), name)
