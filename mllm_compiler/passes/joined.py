"""Joins that move nothing: operands that are written where the joined tensor has them.

    %a = cpu.broadcast %w {.., slot = #cpu.slot<0, 1536>}
    %b = cpu.f32_patch_embed .. {.., slot = #cpu.slot<1536, 393216>}
    %y = cpu.concat %a, %b {axis = 1, placed, slot = #cpu.slot<0, 394752>}

Such a `cpu.concat` is no stage. It joins along the first axis that can have more than one element,
so that its operands lie one behind the other; each is made by a stage and read by nothing else, at
an offset that is known and aligned; and the result is no result of the graph, which the caller may
bind elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Final

from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects import cpu
from mllm_compiler.dialects.types import element_of, shape_of
from mllm_compiler.passes.arena import ALIGNMENT
from mllm_compiler.passes.graphs import block_of, graphs, symbol_bound, users
from mllm_compiler.weights import DTYPES

PLACED: Final = "placed"
"""The attribute of a `cpu.concat` whose operands lie in its result."""


def is_placed(op: Operation) -> bool:
    """Whether an op is a join that moves nothing."""
    return isinstance(op, cpu.ConcatOp) and PLACED in op.attributes


def candidates(module: ModuleOp, bounds: Mapping[str, int]) -> list[cpu.ConcatOp]:
    """The joins that may move nothing; none of them is an operand of another."""
    found: list[cpu.ConcatOp] = []
    for graph in graphs(module):
        for op in block_of(graph).ops:
            if isinstance(op, cpu.ConcatOp) and _can_be_placed(op, bounds, found):
                found.append(op)
    return found


def place(joins: list[cpu.ConcatOp], *, on: bool) -> None:
    """Says of joins whether their operands lie in their results."""
    for join in joins:
        join.attributes.pop(PLACED, None)
        if on:
            join.attributes[PLACED] = UnitAttr()


def joint_of(value: SSAValue) -> tuple[cpu.ConcatOp, int] | None:
    """The join in whose result a value lies, and how many bytes behind its start."""
    use = only_use(value)
    if use is None or not is_placed(use[0]):
        return None
    join, index = use
    assert isinstance(join, cpu.ConcatOp)
    return join, sum(static_bytes(x, join) or 0 for x in join.xs[:index])


def only_use(value: SSAValue) -> tuple[Operation, int] | None:
    """The one op that reads a value, under its own name or an alias, and as which operand."""
    uses = list(value.uses)
    if len(uses) != 1:
        return None
    if isinstance(uses[0].operation, cpu.AliasOp):
        return only_use(uses[0].operation.y)
    return uses[0].operation, uses[0].index


def static_bytes(value: SSAValue, join: cpu.ConcatOp) -> int | None:
    """The bytes of an operand where they are known; axes before that of the join have one."""
    sizes = [d.as_int() for d in shape_of(value)[join.axis.value.data :]]
    known = [n for n in sizes if n is not None]
    return DTYPES[str(element_of(value))].itemsize * prod(known) if known == sizes else None


def _can_be_placed(
    join: cpu.ConcatOp, bounds: Mapping[str, int], before: list[cpu.ConcatOp]
) -> bool:
    shape = shape_of(join.y)[: join.axis.value.data]
    largest = {s: symbol_bound(s, dict(bounds)) for d in shape for s in d.symbols()}
    if any(d.unknown or d.upper(largest) != 1 for d in shape) or _is_returned(join.y):
        return False
    offset = 0
    for x, behind in zip(join.xs, [*list(join.xs)[1:], None], strict=True):
        maker = _maker(x)
        if not isinstance(maker, cpu.CpuOp) or maker in before or only_use(_root(x)) is None:
            return False
        size = static_bytes(x, join)
        if behind is not None and (size is None or (offset + size) % ALIGNMENT):
            return False
        offset += size or 0
    return True


def _root(value: SSAValue) -> SSAValue:
    while isinstance(value.owner, cpu.AliasOp):
        value = value.owner.x
    return value


def _maker(value: SSAValue) -> Operation | None:
    owner = _root(value).owner
    return owner if isinstance(owner, Operation) else None


def _is_returned(value: SSAValue) -> bool:
    return any(isinstance(user, ReturnOp) for name in _names(value) for user in users(name))


def _names(value: SSAValue) -> Iterator[SSAValue]:
    """A value and its aliases."""
    yield value
    for user in users(value):
        if isinstance(user, cpu.AliasOp):
            yield from _names(user.y)
