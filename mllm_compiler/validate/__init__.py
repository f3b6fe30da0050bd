"""`--validate`: runs every graph before and after each pass, on many inputs, and compares.

The inputs are those of the user (`--data`), and seeded ones: ordinary and adversarial, small enough
that a whole model runs in moments. A pass that exceeds what it promises is named with the graph,
the result, the first node that moved, and the input that shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite, isinf
from sys import float_info

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from mllm_compiler.backends.buckets import variant_of
from mllm_compiler.dialects.cpu.base import CpuOp
from mllm_compiler.errors import CompileError
from mllm_compiler.pass_run import PassRecord
from mllm_compiler.passes.graphs import (
    argument_names,
    block_of,
    callees,
    functions,
    graphs,
    located_clone,
    pipeline_of,
)
from mllm_compiler.reference import find_function
from mllm_compiler.validate.cases import Case, Values, cases_of, seeded_inputs
from mllm_compiler.validate.compare import exact_error, relative_error
from mllm_compiler.validate.derived import expected_of_entry, padded_results, source_of
from mllm_compiler.validate.edges import along_edges, makers_of
from mllm_compiler.validate.noise import rounding_noise
from mllm_compiler.validate.run import first_difference, node_values, run_graph
from mllm_compiler.weights import WeightStore

__all__ = ["Case", "Proof", "Validator", "relative_error", "seeded_inputs"]

ROUNDINGS = 2.0
"""How many times further a result may move than where each op is off by one rounding."""

MOST_EXCUSED = 1e-2
"""The largest relative error that roundings excuse: what they move further proves nothing."""

REMEDY = "--dump-dir shows the module before and after; please report it"


@dataclass(frozen=True, kw_only=True)
class Proof:
    """How far a pass moved the results of a module; the rest is said of the result that moved most.

    Attributes:
        promised: The largest relative error that the pass promises.
        noise: How far roundings alone move the result, where it is further from what it was than
            is promised.
        runs: How many pairs of runs were compared.
        error: The largest relative error.
        graph: The graph of the result; empty where nothing moved.
        result: The result.
        case: The input.
        node: The first node of the model whose value moved.
    """

    promised: float
    noise: float = 0.0
    runs: int = 0
    error: float = 0.0
    graph: str = ""
    result: str = ""
    case: str = ""
    node: str = ""


@dataclass
class _Worst:
    """A proof while it is made; `at` is what ran where the error is largest.

    `beyond` has all results that are further away than is promised.
    """

    promised: float
    noise: float = 0.0
    runs: int = 0
    error: float = 0.0
    result: str = ""
    at: tuple[FuncOp, Case] | None = None
    beyond: list[tuple[FuncOp, Case, str, float]] = field(
        default_factory=list[tuple[FuncOp, Case, str, float]]
    )

    def compare(self, graph: FuncOp, case: Case, values: Values, expected: Values) -> None:
        """Takes a pair of runs into account."""
        error_of = relative_error if self.promised > 0 else exact_error
        self.runs += 1
        expected = case.counted(expected)
        for result, value in case.counted(values).items():
            if result not in expected:
                continue
            error = error_of(value, expected[result])
            if error > self.promised:
                self.beyond.append((graph, case, result, error))
            if error > self.error:
                self.error, self.result, self.at = error, result, (graph, case)


@dataclass
class Validator:
    """Compares each graph's results with those before the pass.

    Attributes:
        store: The bytes of weights.
        tolerances: The largest relative error that each pass promises.
        samples: Inputs of the user, by graph.
        proofs: What was found of each pass that ran.
    """

    store: WeightStore
    tolerances: Mapping[str, float]
    samples: Mapping[str, Sequence[Case]] = field(default_factory=dict[str, Sequence[Case]])
    proofs: dict[str, Proof] = field(default_factory=dict[str, Proof])
    _cases: dict[str, list[Case]] = field(default_factory=dict[str, "list[Case]"])
    _values: dict[str, dict[str, Values]] = field(default_factory=dict[str, "dict[str, Values]"])
    _module: ModuleOp | None = None

    def after(self, record: PassRecord, module: ModuleOp) -> None:
        """Runs every graph that is not what it was, and compares with what it gave before.

        Raises:
            CompileError: `MLC-P001`, a result is further away than the pass promises.
        """
        worst = _Worst(self.tolerances.get(record.name, 0.0))
        before = [] if self._module is None else functions(self._module)
        former = {function.sym_name.data: function for function in before}
        moved = {n for f in functions(module) if not _same(f, former.get(n := f.sym_name.data))}
        changed = [g for g in graphs(module) if moved & {g.sym_name.data, *callees(g)}]
        names = {g.sym_name.data for g in graphs(module)}
        values = {name: given for name, given in self._values.items() if name in names}
        for graph in changed:
            name = graph.sym_name.data
            if isinf(worst.promised) and _reshaped(graph, former.get(name)):
                self._cases.pop(name, None)  # Nothing that it takes or gives can be compared.
            known = name in self._cases
            if not known:
                self._cases[name] = self._runnable(module, graph)
            if known and any(
                set(argument_names(graph)) - c.inputs.keys() for c in self._cases[name]
            ):
                values[name] = self._follow(worst, record.name, module, graph)
                continue
            run = partial(self._rerun, record.name) if known else self._run
            values[name] = {c.name: run(module, graph, c) for c in self._cases[name]}
            for case in self._cases[name]:
                self._compare(worst, module, graph, case, values, known=known)
        self._compare_padded(worst, module, changed)
        self._excuse(worst, module)
        self.proofs[record.name] = self._proof(worst, module)
        self._judge(record.name, self.proofs[record.name])
        self._values = values
        if changed:
            self._module = located_clone(module)

    def _runnable(self, module: ModuleOp, graph: FuncOp) -> list[Case]:
        """The cases of a graph; of the adversarial ones those that the model itself can take."""
        ordinary, *adversarial = cases_of(graph, pipeline_of(module))
        kept = [*self.samples.get(graph.sym_name.data, ()), ordinary]
        for case in adversarial:
            try:
                self._run(module, graph, case)
            except Exception:  # an operator raises whatever it met
                continue
            kept.append(case)
        return kept

    def _run(self, module: ModuleOp, graph: FuncOp, case: Case) -> Values:
        return run_graph(module, graph, case.inputs, self.store)

    def _rerun(self, pass_name: str, module: ModuleOp, graph: FuncOp, case: Case) -> Values:
        """Runs a case that the graph took before the pass."""
        try:
            return self._run(module, graph, case)
        except Exception as fault:  # a meaning raises whatever it met
            raise CompileError(
                "MLC-P001",
                f"'{pass_name}' left what cannot be run on the input '{case.name}': {fault}",
                location=graph.sym_name.data,
                remedy=REMEDY,
            ) from fault

    def _follow(
        self, worst: _Worst, pass_name: str, module: ModuleOp, graph: FuncOp
    ) -> dict[str, Values]:
        """Compares a graph that takes other inputs than before on what other graphs give it."""
        assert self._module is not None
        name, before, found = graph.sym_name.data, self._module, dict[str, Values]()
        former, cases = find_function(before, name), list[Case]()
        for case in self._cases[name]:
            makers = makers_of(before, former, case, self._cases)
            old = along_edges(before, former, case, makers, self.store)
            new = along_edges(module, graph, old, makers, self.store)
            found[case.name] = self._rerun(pass_name, module, graph, new)
            worst.compare(graph, new, found[case.name], self._run(before, former, old))
            cases.append(new)
        self._cases[name] = cases
        return found

    def _compare(
        self,
        worst: _Worst,
        module: ModuleOp,
        graph: FuncOp,
        case: Case,
        values: Mapping[str, Mapping[str, Values]],
        *,
        known: bool,
    ) -> None:
        name, source = graph.sym_name.data, source_of(module, graph)
        given = values[name][case.name]
        if known:
            worst.compare(graph, case, given, self._values[name][case.name])
        elif source is not None and self._module is not None:
            expected = expected_of_entry(module, source, case.inputs, given, self.store)
            worst.compare(graph, case, given, expected)

    def _compare_padded(self, worst: _Worst, module: ModuleOp, changed: Sequence[FuncOp]) -> None:
        """Compares graphs that were padded in this pass with the one that they serve."""
        serving = {v.entry.data: g for g in changed if (v := variant_of(g)) is not None}
        for entry in serving.keys() & self._values.keys():
            before = self._values[entry]
            for case, given in padded_results(module, entry, self._cases[entry], self.store):
                worst.compare(serving[entry], case, given, before[case.name])

    def _excuse(self, worst: _Worst, module: ModuleOp) -> None:
        """Excuses results beyond the promise that roundings explain; of the rest is the worst."""
        if not worst.beyond or worst.promised == 0 or isinf(worst.promised) or isinf(worst.error):
            return
        rest: list[tuple[FuncOp, Case, str, float]] = []
        for graph, case, result, error in worst.beyond:
            moved = self._noise(module, graph, case).get(result, 0.0)
            noise = min(ROUNDINGS * moved, MOST_EXCUSED)
            if error > noise:
                rest.append((graph, case, result, error))
            elif worst.at == (graph, case) and worst.result == result:
                worst.noise = noise
        if rest:
            graph, case, worst.result, worst.error = max(rest, key=lambda found: found[3])
            worst.at, worst.noise = (graph, case), 0.0

    def _noise(self, module: ModuleOp, graph: FuncOp, case: Case) -> dict[str, float]:
        """How far roundings move the results of a graph, as it is or, where it is lowered, was."""
        former = {g.sym_name.data: g for g in graphs(self._module)} if self._module else {}
        before = former.get(graph.sym_name.data)
        lowered = any(isinstance(op, CpuOp) for op in block_of(graph).ops)
        if lowered and before is not None and self._module is not None:
            return rounding_noise(self._module, before, case.inputs, self.store)
        return rounding_noise(module, graph, case.inputs, self.store)

    def _proof(self, worst: _Worst, module: ModuleOp) -> Proof:
        if worst.at is None:
            return Proof(promised=worst.promised, runs=worst.runs)
        graph, case = worst.at
        return Proof(
            promised=worst.promised,
            noise=worst.noise,
            runs=worst.runs,
            error=worst.error,
            graph=graph.sym_name.data,
            result=worst.result,
            case=case.name,
            node=self._first_node(module, graph, case, worst),
        )

    def _first_node(self, module: ModuleOp, graph: FuncOp, case: Case, worst: _Worst) -> str:
        """The first node whose value moved, further than is allowed where the pass fails."""
        names = {g.sym_name.data: g for g in graphs(self._module)} if self._module else {}
        former = names.get(graph.sym_name.data)
        if former is None or self._module is None:
            return ""
        before = node_values(self._module, former, case.inputs, self.store)
        after = node_values(module, graph, case.inputs, self.store)
        allowed = worst.promised if worst.error > worst.promised else 0.0
        allowed = float_info.max if isinf(worst.error) else allowed
        return first_difference(before, after, allowed)

    def _judge(self, pass_name: str, proof: Proof) -> None:
        if proof.error <= max(proof.promised, proof.noise) and isfinite(proof.error):
            return
        at = f"; the first node that moved is {proof.node}" if proof.node else ""
        found = f"changed '{proof.result}' by {proof.error:.2e} on the input '{proof.case}'"
        promise = f"it promises at most {proof.promised:.0e}"
        if isinf(proof.promised):
            promise = "it may change numbers, but neither shapes nor whether they are finite"
        raise CompileError(
            "MLC-P001",
            f"'{pass_name}' {found}, {promise}{at}",
            location=proof.graph,
            remedy=REMEDY,
        )


def _same(graph: FuncOp, former: FuncOp | None) -> bool:
    """Whether two graphs of two modules are the same; the types of values count too."""
    if former is None or graph.parent is None or former.parent is None:
        return False
    if not graph.is_structurally_equivalent(former, {graph.parent: former.parent}):
        return False
    pairs = zip(graph.walk(), former.walk(), strict=True)
    return all(a.result_types == b.result_types for a, b in pairs)


def _reshaped(graph: FuncOp, former: FuncOp | None) -> bool:
    """Whether a graph takes or gives other types than it did."""
    return former is not None and graph.function_type != former.function_type
