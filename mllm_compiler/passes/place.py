"""`place`: every op gets the target that runs it, with the reason; exact.

    %y = mllm.linear %x, %w
->
    %y = mllm.linear %x, %w {place = #hal.place<"c", "f32_linear">}

An op that the target does not run goes to the fallback, where one is named and runs it; otherwise
it has no home, which is an error. A graph that is placed on a device of the target is divided
between the device and the fallback by what both cost (`partition`); an op that the device could run
and does not says so:

    %y = mllm.binary add %a, %b {place = #hal.place<"c", "qnn: its island of 1 operation saves less
                                 than its calls and copies cost: 0.9 us < 104.0 us">}
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from xdsl.context import Context
from xdsl.dialects.builtin import DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.passes import ModulePass

from mllm_compiler.dialects import mllm
from mllm_compiler.dialects.hal import PlaceAttr, PlanAttr
from mllm_compiler.dialects.onnx import CustomOp
from mllm_compiler.dialects.types import element_of, ranked, shape_of
from mllm_compiler.errors import CompileError
from mllm_compiler.hal import Answer, Cost, Refusal, Rule, target
from mllm_compiler.passes.cached_values import cached_values
from mllm_compiler.passes.device_plan import MOST_CALLS, Candidate, DevicePlan, plan_device
from mllm_compiler.passes.graphs import (
    DEVICE_PLAN,
    FALLBACK,
    block_of,
    graphs,
    location_of,
    pipeline_of,
    source_name,
    symbol_bound,
)
from mllm_compiler.passes.placed_graphs import check_graphs, read_places, spelled_out

NONE = "none"
BY_COST, MOST = WAYS = ("cost", "most")
"""What decides which of its operations a device gets: what they cost, or nothing."""

TYPICAL = 256
"""Symbols are counted at their bound, but at most at this."""


@dataclass(frozen=True)
class Place(ModulePass):
    """Gives every op a target.

    Attributes:
        target: Where ops should run.
        fallback: Where those run that the target cannot; `none` refuses them.
        graphs: Graphs that should run elsewhere: `graph=target`.
        max_partitions: The calls of a device in a graph that there may be.
        partition: `cost`, what is cheaper there runs on a device; `most`, all that it runs.
    """

    name = "place"
    target: str = "c"
    fallback: str = NONE
    graphs: tuple[str, ...] = ()
    max_partitions: int = MOST_CALLS
    partition: str = BY_COST

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Places every op of every graph.

        Raises:
            CompileError: MLC-R001, an op has no home; MLC-U007, no such graph.
        """
        refused: dict[str, dict[str, Attribute]] = {}
        placement = explain(
            op,
            self.target,
            self.fallback,
            read_places(self.graphs),
            max_partitions=self.max_partitions,
            partition=self.partition,
        )
        for row in placement.rows:
            if row.home is None:
                raise CompileError(
                    "MLC-R001",
                    f"'{row.operation}' has no home on '{row.target}': {row.why}",
                    location=row.location,
                    remedy=row.remedy,
                )
            row.op.attributes["place"] = PlaceAttr.of(row.home, row.why)
            if row.home != row.target:
                refused.setdefault(row.graph, {})[row.location] = StringAttr(row.why)
        for graph in graphs(op):
            if graph.sym_name.data in refused:
                graph.attributes[FALLBACK] = DictionaryAttr(refused[graph.sym_name.data])
            if (plan := placement.plans.get(graph.sym_name.data)) is not None:
                graph.attributes[DEVICE_PLAN] = PlanAttr.of(plan.device, plan.facts)


@dataclass(frozen=True, kw_only=True)
class Row:
    """Where one op runs.

    Attributes:
        op: The op.
        graph: The graph that it stands in.
        location: The ONNX node.
        type: Its first result's element type and dims.
        target: Where it should run.
        home: The target; None where it has none.
        why: The kernel that runs it, or what is missing.
        refusal: The target's rule against it.
        remedy: What a user can do where it has no home, or only the fallback.
        cost: What it costs.
    """

    op: Operation
    graph: str
    location: str
    type: str
    target: str
    home: str | None
    why: str
    refusal: Refusal | None
    remedy: str
    cost: Cost

    @property
    def operation(self) -> str:
        """The op's name; of an operator without a schema its own, with its domain."""
        if not isinstance(self.op, CustomOp):
            return self.op.name
        return f"{self.op.op_domain.data or 'ai.onnx'}.{self.op.op_type.data}"


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where every op runs.

    Attributes:
        target: The target that was asked for.
        rows: An op a row, in the order of the module.
        plans: How graphs that are placed on devices are divided, by graph.
    """

    target: str
    rows: tuple[Row, ...]
    plans: Mapping[str, DevicePlan] = field(default_factory=dict[str, DevicePlan])

    @property
    def homeless(self) -> tuple[Row, ...]:
        """The ops without a home."""
        return tuple(row for row in self.rows if row.home is None)

    def share(self, home: str) -> float:
        """The share of all floating-point operations that runs on a target.

        An op that does not run there counts at least one, so that only all of them make 1.
        """
        here = sum(row.cost.flops for row in self.rows if row.home == home)
        away = sum(max(1, row.cost.flops) for row in self.rows if row.home != home)
        return 1.0 if away == 0 else here / (here + away)

    def totals(self, key: Callable[[Row], str | None]) -> dict[str, Total]:
        """The cost of the rows by a key, dearest first; rows without a key count nowhere."""
        sums: dict[str, Total] = {}
        for row in self.rows:
            if (name := key(row)) is not None:
                sums[name] = sums.get(name, Total()) + row.cost
        return dict(sorted(sums.items(), key=lambda item: (-item[1].flops, item[0])))


@dataclass(frozen=True)
class Total:
    """The cost of several ops."""

    operations: int = 0
    flops: int = 0
    read: int = 0
    written: int = 0
    weights: int = 0

    def __add__(self, cost: Cost) -> Total:
        """With one op more."""
        return Total(
            self.operations + 1,
            self.flops + cost.flops,
            self.read + cost.read,
            self.written + cost.written,
            self.weights + cost.weights,
        )


def explain(
    module: ModuleOp,
    name: str,
    fallback: str = NONE,
    places: Mapping[str, str] | None = None,
    *,
    max_partitions: int = MOST_CALLS,
    partition: str = BY_COST,
) -> Placement:
    """Where every op would run; nothing is changed and no op refused.

    Weights and constants are data and have no row.

    Args:
        module: A lifted module.
        name: The target that ops should run on.
        fallback: The target of those that it does not run.
        places: The targets of graphs that should run elsewhere.
        max_partitions: The calls of a device in a graph that there may be.
        partition: `cost` or `most`.

    Raises:
        CompileError: MLC-U007, no such graph.
    """
    bounds, elsewhere = pipeline_of(module).bound_of, spelled_out(module, places or {})
    rows: list[Row] = []
    plans: dict[str, DevicePlan] = {}
    check_graphs(module, elsewhere)
    for graph in graphs(module):
        own, home = graph.sym_name.data, elsewhere.get(source_name(graph), name)
        ops = _computing(block_of(graph).ops)
        symbols = {s for op in ops for v in (*op.operands, *op.results) for s in _symbols(v)}
        env = {s: min(TYPICAL, symbol_bound(s, bounds)) for s in symbols}
        found = [_row(op, own, env, home, fallback) for op in ops]
        if home != name:
            cached = cached_values(graph, pipeline_of(module))
            found = [_kept(row, cached, fallback) for row in found]
        if home != name and fallback != NONE:
            plans[own] = plan_device(
                graph,
                [_candidate(row, env, fallback) for row in found],
                env,
                target(home),
                target(fallback),
                most_calls=max_partitions,
                by_cost=partition == BY_COST,
            )
            found = [_divided(row, plans[own], fallback) for row in found]
        rows += found
    return Placement(target=name, rows=tuple(rows), plans=plans)


def _kept(row: Row, cached: Collection[SSAValue], fallback: str) -> Row:
    """A row of an op on a device; the host keeps the caches, and what reads and appends to them."""
    if not any(value in cached for value in (*row.op.operands, *row.op.results)):
        return row
    refusal = Refusal(Rule.CACHE, "it reads or appends to the KV cache, which the host keeps")
    home = None if fallback == NONE else fallback
    remedy = "give --fallback c, or compile all of it with --target"
    why = refusal.reason if home is None else f"{row.target}: {refusal.reason}"
    return replace(row, home=home, why=why, refusal=refusal, remedy=remedy)


def _candidate(row: Row, env: Mapping[str, int], fallback: str) -> Candidate:
    """An op without a home counts as the fallback's, so that all of a graph can be weighed."""
    kept = row.home == fallback or target(fallback).refusal(row.op, env) is None
    return Candidate(row.op, row.cost, kept or row.home is None, row.refusal is None)


def _divided(row: Row, plan: DevicePlan, fallback: str) -> Row:
    """A row of an op that the device could run, where the plan leaves it to the fallback."""
    reason = plan.reasons.get(row.op)
    return row if reason is None else replace(row, home=fallback, why=f"{row.target}: {reason}")


def _row(op: Operation, graph: str, env: dict[str, int], name: str, fallback: str) -> Row:
    answer, home = target(name).supports(op, env), name
    why, remedy = answer.reason, answer.remedy
    if not answer.ok:
        second = None if fallback == NONE else target(fallback).supports(op, env)
        home = _second_home(second, fallback)
        why = answer.reason
        if home is not None:
            passed = _passed_over(op, env, target(name).falls_to, home)
            why = "; ".join((f"{name}: {why}", *passed))
    return Row(
        op=op,
        graph=graph,
        location=location_of(op),
        type=_type(op.results[0]) if op.results else "",
        target=name,
        home=home,
        why=why,
        refusal=answer.refusal,
        remedy=remedy,
        cost=answer.cost,
    )


def _passed_over(
    op: Operation, env: Mapping[str, int], order: Sequence[str], home: str
) -> Iterator[str]:
    """Targets before the fallback that the op would run on, which have no backend."""
    for other in order[: order.index(home)] if home in order else ():
        if not target(other).backend and target(other).refusal(op, env) is None:
            yield f"{other}: could, but has no backend"


def _second_home(answer: Answer | None, fallback: str) -> str | None:
    return fallback if answer is not None and answer.ok else None


def _computing(ops: Iterable[Operation]) -> list[Operation]:
    data = (mllm.WeightOp, mllm.ConstantOp, ReturnOp)
    return [op for op in ops if not isinstance(op, data)]


def _symbols(value: SSAValue) -> set[str]:
    if ranked(value) is None:
        return set()
    return {s for d in shape_of(value) for s in d.symbols()}


def _type(value: SSAValue) -> str:
    if ranked(value) is None:
        return str(value.type)
    return f"{element_of(value)}[{', '.join(map(str, shape_of(value)))}]"
