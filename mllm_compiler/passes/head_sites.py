"""Where heads can be cut: an attention, the products that make its operands, the one that reads it.

%a = mllm.attention (mllm.linear ..), (mllm.kv_append %past, (mllm.rope (mllm.linear ..))), ..
%y = mllm.linear %a, %wo
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from xdsl.dialects.builtin import f32
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, SSAValue

from mllm_compiler.dialects.mllm import (
    AttentionOp,
    KvAppendOp,
    LinearOp,
    RopeOp,
    SliceOp,
    WeightOp,
    constant_array,
)
from mllm_compiler.dialects.types import element_of, rank_of, shape_of
from mllm_compiler.passes.graphs import block_of, location_of
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
    def name(self) -> str:
        """The digest of the output's weight, by which graphs share an attention."""
        weight = made_by(self.output.weight, WeightOp)
        return location_of(self.output) if weight is None else weight.value.digest.data

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
        if fits and all(source_of(value, store) is not None for value in parts):
            sites.append(Site(op, users[0]))
    return sites


def source_of(value: SSAValue, store: WeightStore) -> tuple[LinearOp, int] | None:
    """The product whose rows make a value's channels, and the first of these rows."""
    append = made_by(value, KvAppendOp)
    if append is not None:
        past = append.past
        alone = isinstance(past, BlockArgument) and past.has_one_use()
        return source_of(append.new, store) if alone else None
    rope = made_by(value, RopeOp)
    if rope is not None:
        return source_of(rope.x, store)
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


def elements_of(value: SSAValue, store: WeightStore) -> Array | None:
    """The elements of a weight or constant."""
    weight = made_by(value, WeightOp)
    if weight is None:
        return constant_array(value)
    blob = weight.value
    return store.array(blob.digest.data, str(blob.element), blob.dims)
