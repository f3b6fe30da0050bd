"""Where heads can be cut: an attention, the products that make its operands, the one that reads it.

%a = mllm.attention (mllm.linear ..), (mllm.kv_append %past, (mllm.rope (mllm.linear ..))), ..
%y = mllm.linear %a, %wo
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import f32
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.rewriter import Rewriter

from mllm_compiler.dialects.dims import tensor_of
from mllm_compiler.dialects.mllm import (
    AttentionOp,
    BlobAttr,
    KvAppendOp,
    LinearOp,
    RopeOp,
    SliceOp,
    WeightOp,
    constant_array,
)
from mllm_compiler.dialects.types import element_of, rank_of, shape_of
from mllm_compiler.passes.graphs import block_of
from mllm_compiler.passes.head_choice import Moments, channels, resolved
from mllm_compiler.passes.kept_rows import put_before
from mllm_compiler.passes.matching import made_by
from mllm_compiler.weights import WeightStore

Array = NDArray[Any]


@dataclass(frozen=True)
class Site:
    """An attention whose heads can be cut.

    Attributes:
        attention: The attention.
        output: The product that alone reads it.
    """

    attention: AttentionOp
    output: LinearOp

    @property
    def groups(self) -> int:
        """Heads of keys and values; each is read by the heads of a group."""
        return self.attention.kv_head_count

    @property
    def width(self) -> int:
        """Channels of all heads' outputs."""
        width = shape_of(self.attention.result)[2].as_int()
        assert width is not None
        return width


def sites_of(graph: FuncOp, store: WeightStore) -> list[Site]:
    """The attentions of a graph whose heads can be cut."""
    sites = list[Site]()
    for op in block_of(graph).ops:
        users = [u.operation for u in op.results[0].uses] if isinstance(op, AttentionOp) else []
        if not isinstance(op, AttentionOp) or len(users) != 1 or not isinstance(users[0], LinearOp):
            continue
        parts = [op.q, op.k, op.v]
        fits = op.kv_head_count > 1 and op.bias is None and users[0].x is op.result
        sides = [v for v in (users[0].weight, users[0].bias) if v is not None]
        fits = fits and element_of(op.result) == f32
        fits = fits and all(elements_of(v, store) is not None for v in sides)
        if fits and all(_source(value, store) is not None for value in parts):
            sites.append(Site(op, users[0]))
    return sites


def _source(value: SSAValue, store: WeightStore) -> tuple[LinearOp, int] | None:
    """The product whose rows make a value's channels, and the first of these rows."""
    append = made_by(value, KvAppendOp)
    if append is not None:
        past = append.past
        alone = isinstance(past, BlockArgument) and past.has_one_use()
        return _source(append.new, store) if alone else None
    rope = made_by(value, RopeOp)
    if rope is not None:
        return _source(rope.x, store)
    part, start = made_by(value, SliceOp), 0
    if part is not None:
        first = part.starts.data[-1].as_int()
        if first is None or set(part.step_list) != {1} or _cuts_tokens(part):
            return None
        value, start = part.x, first
    linear = made_by(value, LinearOp)
    if linear is None or rank_of(value) != 3:
        return None
    sides = [linear.weight] if linear.bias is None else [linear.weight, linear.bias]
    known = all(elements_of(side, store) is not None for side in sides)
    return (linear, start) if known else None


def _cuts_tokens(part: SliceOp) -> bool:
    return shape_of(part.x)[:-1] != shape_of(part.result)[:-1]


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
    source = _source(value, store)
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
    return put(LinearOp(linear.x, made, short))


def elements_of(value: SSAValue, store: WeightStore) -> Array | None:
    """The elements of a weight or constant."""
    weight = made_by(value, WeightOp)
    if weight is None:
        return constant_array(value)
    blob = weight.value
    return store.array(blob.digest.data, str(blob.element), blob.dims)


def _weight(array: Array, like: LinearOp, store: WeightStore) -> WeightOp:
    """A weight in the place of one of a product, under its name."""
    named = made_by(like.weight, WeightOp)
    name = None if named is None or named.weight_name is None else named.weight_name.data
    if name is not None and array.ndim == 1:
        name = f"{name.removesuffix('.weight')}.bias"
    element = element_of(like.weight)
    return WeightOp(BlobAttr.of(store.add(array), element, array.shape), name)
