"""What of a graph runs on its device, in which calls, at what cost; and why the rest does not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from mllm_compiler.dialects import mllm
from mllm_compiler.hal import Cost, Target, is_stored, nbytes_of
from mllm_compiler.hal.rates import PICOSECONDS
from mllm_compiler.passes.graphs import return_of, users
from mllm_compiler.passes.minimum_cut import Link, Problem, Stored, Work
from mllm_compiler.passes.partition import Island, Ops, Partition, divided

IMAGES = (mllm.ConvOp, mllm.PatchEmbedOp, mllm.PoolOp, mllm.ResizeOp)
"""Ops whose images a device with channels last turns where they come from or go to the host."""

MOST_CALLS = 8
"""The calls of a device in one run of a graph."""


@dataclass(frozen=True)
class Candidate:
    """An op of a placed graph.

    Attributes:
        op: The op.
        cost: What it costs.
        on_host: Whether the host runs it.
        on_device: Whether the device does.
    """

    op: Operation
    cost: Cost
    on_host: bool
    on_device: bool


@dataclass(frozen=True, kw_only=True)
class Call:
    """What one call of the device does; bytes are those that it takes and gives."""

    operations: int
    flops: int
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True, kw_only=True)
class DevicePlan:
    """A graph that is divided between a device and its host.

    Attributes:
        graph: The graph.
        device: The device.
        host: What calls it.
        calls: Its calls, in order.
        operations: The operations of the graph.
        flops: The floating-point operations of the graph.
        doubled: The bytes of weights that both store.
        cost_us: What a run costs, in microseconds, as the tables say.
        host_us: What it would cost on the host alone.
        reasons: Why an op that the device could run stays on the host.
    """

    graph: str
    device: str
    host: str
    calls: tuple[Call, ...]
    operations: int
    flops: int
    doubled: int
    cost_us: float
    host_us: float
    reasons: Mapping[Operation, str]

    @property
    def facts(self) -> dict[str, int]:
        """The plan in whole numbers, as `#hal.plan` names them."""
        return {
            "device_operations": sum(call.operations for call in self.calls),
            "operations": self.operations,
            "device_flops": sum(call.flops for call in self.calls),
            "flops": self.flops,
            "bytes_in": sum(call.bytes_in for call in self.calls),
            "bytes_out": sum(call.bytes_out for call in self.calls),
            "bytes_doubled": self.doubled,
            "cost_ns": round(self.cost_us * 1000),
            "host_cost_ns": round(self.host_us * 1000),
        }


def plan_device(
    graph: FuncOp,
    candidates: Sequence[Candidate],
    env: Mapping[str, int],
    device: Target,
    host: Target,
    *,
    most_calls: int = MOST_CALLS,
    by_cost: bool = True,
) -> DevicePlan:
    """Divides a graph.

    Args:
        graph: The graph.
        candidates: Its ops that compute, in order.
        env: The symbols of the graph.
        device: Runs what pays there.
        host: Calls it, and runs the rest.
        most_calls: The calls of the device that there may be.
        by_cost: Whether costs decide; otherwise the device gets all that it runs.
    """
    values = _values(candidates)
    problem = _problem(graph, candidates, values, env, device, host)
    found = divided(problem, device.rates.startup, most_calls, by_cost=by_cost)
    sizes = [nbytes_of(value, env) for value in values]
    reasons = {
        candidates[number].op: reason
        for island in found.left()
        for reason in [_reason(island, most_calls)]
        for number in island.ops
    }
    return DevicePlan(
        graph=graph.sym_name.data,
        device=device.name,
        host=host.name,
        calls=tuple(_call(found, at, candidates, sizes) for at in range(len(found.calls))),
        operations=len(candidates),
        flops=sum(one.cost.flops for one in candidates),
        doubled=_doubled(found.device, candidates, env),
        cost_us=found.cost / PICOSECONDS,
        host_us=sum(_on_host(one, host) for one in candidates) / PICOSECONDS,
        reasons=reasons,
    )


def _call(found: Partition, at: int, candidates: Sequence[Candidate], sizes: Sequence[int]) -> Call:
    ops = found.calls[at]
    return Call(
        operations=len(ops),
        flops=sum(candidates[op].cost.flops for op in ops),
        bytes_in=sum(sizes[link] for link in found.taken(at)),
        bytes_out=sum(sizes[link] for link in found.given(at)),
    )


def _reason(island: Island, most_calls: int) -> str:
    words = f"its island of {len(island.ops)} operation{'s' if len(island.ops) > 1 else ''}"
    saves, costs = (f"{n / PICOSECONDS:.1f} us" for n in (island.saves, island.costs))
    if island.saves > island.costs:
        return f"{words} saves the least, and --max-partitions {most_calls} allows no call more"
    return f"{words} saves less than its calls and copies cost: {saves} < {costs}"


def _values(candidates: Iterable[Candidate]) -> list[SSAValue]:
    """What the ops hand on, and what they are given."""
    return list(
        dict.fromkeys(
            value
            for one in candidates
            for value in (*one.op.operands, *one.op.results)
            if not is_stored(value)
        )
    )


def _problem(
    graph: FuncOp,
    candidates: Sequence[Candidate],
    values: Sequence[SSAValue],
    env: Mapping[str, int],
    device: Target,
    host: Target,
) -> Problem:
    numbers = {one.op: number for number, one in enumerate(candidates)}
    returned = set(return_of(graph).operands)

    def link(value: SSAValue) -> Link:
        readers = tuple(dict.fromkeys(numbers[op] for op in users(value) if op in numbers))
        turned = device.rates.turns_images and _is_image(value)
        carried = device.rates.carried(nbytes_of(value, env) * (2 if turned else 1))
        maker = numbers.get(value.owner) if isinstance(value.owner, Operation) else None
        return Link(maker, readers, carried, carried, value in returned)

    return Problem(
        works=tuple(
            Work(
                _on_host(one, host) if one.on_host else None,
                device.rates.time(one.cost) if one.on_device else None,
            )
            for one in candidates
        ),
        links=tuple(map(link, values)),
        stored=tuple(
            Stored(readers, host.rates.carried(nbytes_of(weight, env)))
            for weight, readers in _weights(candidates).items()
        ),
    )


def _on_host(one: Candidate, host: Target) -> int:
    """The host calls a kernel for each op."""
    return host.rates.startup + host.rates.time(one.cost)


def _is_image(value: SSAValue) -> bool:
    ends = [value.owner, *users(value)]
    return any(isinstance(op, IMAGES) and value in (*op.operands[:1], *op.results) for op in ends)


def _weights(candidates: Sequence[Candidate]) -> dict[SSAValue, tuple[int, ...]]:
    """The readers of what is stored, by number."""
    found: dict[SSAValue, list[int]] = {}
    for number, one in enumerate(candidates):
        for value in dict.fromkeys(one.op.operands):
            if is_stored(value):
                found.setdefault(value, []).append(number)
    return {weight: tuple(readers) for weight, readers in found.items()}


def _doubled(device: Ops, candidates: Sequence[Candidate], env: Mapping[str, int]) -> int:
    """The bytes of weights that both sides read."""
    both = [
        weight
        for weight, readers in _weights(candidates).items()
        if any(r in device for r in readers) and not all(r in device for r in readers)
    ]
    return sum(nbytes_of(weight, env) for weight in both)
