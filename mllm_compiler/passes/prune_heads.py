"""`prune-heads`: attention without the heads that tell least, its output fitted again; approximate.

    prune-heads{heads=4}

    %q = mllm.linear %x, %wq : [1, 257, 384]            // 6 heads of 64 channels, so %k and %v
    %a = mllm.attention %q, %k, %v {heads = 6}
    %y = mllm.linear %a, %wo, %bo

becomes

    %q = mllm.linear %x, %wq4 : [1, 257, 256]           // the rows of 4 heads, so %k and %v
    %a = mllm.attention %q, %k, %v {heads = 4}
    %y = mllm.linear %a, %wo4, %bo4                     // as near to the old %y as these get

The graphs run once over calibration inputs, `data/GRAPH/NAME.npz`, which `mllmc compile` makes of
its `--data`. By `score=entropy` those heads go whose attention is nearest to looking everywhere
alike; by `score=error` that without which the output can be fitted best, one by one. `refit=false`
leaves the output as it is for the heads that stay: what least squares must beat. Heads that share
keys and values go together, a cache gets narrower. Graphs that share the output's weight, a decoder
with and without a past, keep the same heads. Queries, keys and values may be slices of one product,
and rotated. Attention in another form stays as it is; a graph without any that can be pruned is
refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from mllm_compiler.dialects import store_of
from mllm_compiler.dialects.mllm import AttentionOp
from mllm_compiler.errors import CompileError
from mllm_compiler.passes.calibration_data import graph_inputs
from mllm_compiler.passes.graphs import argument_names, graphs, location_of, remove_dead
from mllm_compiler.passes.head_choice import Moments, least_missed, most_informed
from mllm_compiler.passes.head_cuts import cut
from mllm_compiler.passes.head_sites import Array, Site, elements_of, sites_of
from mllm_compiler.reference import run_function
from mllm_compiler.reference.mllm_attention import attention_weights
from mllm_compiler.weights import WeightStore


@dataclass(frozen=True)
class PruneHeads(ModulePass):
    """Leaves `heads` heads, or a `share` of them, to the attention of `graph` or of all graphs."""

    name = "prune-heads"

    heads: int = 0
    share: float = 0.0
    score: str = "entropy"
    refit: bool = True
    ridge: float = 1e-3
    graph: str | None = None
    data: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Cuts the heads.

        Raises:
            CompileError: MLC-P020, the options fit no model; MLC-P021, they do not fit this one.
        """
        self._check()
        store = store_of(ctx)
        wanted = {g: sites_of(g, store) for g in graphs(op) if self.graph in (None, _name(g))}
        wanted = {graph: sites for graph, sites in wanted.items() if sites}
        if not wanted:
            raise _misfit(self.graph or "the model", "no attention has heads that can be cut")
        moments: dict[str, Moments] = {}
        for graph, sites in wanted.items():
            self._measure(op, graph, sites, moments, store)
        for graph, sites in wanted.items():
            for site in sites:
                measured = moments[site.name]
                kept = self._choose(site, measured, store)
                cut(site, kept, measured if self.refit else None, self.ridge, store)
            remove_dead(graph)
            graph.update_function_type()

    def _check(self) -> None:
        faults = [
            ((self.heads > 0) != (0 < self.share < 1), "give heads, or a share between 0 and 1"),
            (self.score in ("entropy", "error"), "score is entropy or error"),
            (self.ridge >= 0, "ridge is no negative number"),
        ]
        for holds, rule in faults:
            if not holds:
                raise CompileError(
                    "MLC-P020",
                    f"these options fit no model: {rule}",
                    location=self.name,
                    remedy="such as prune-heads{heads=4}",
                )

    def _measure(
        self,
        module: ModuleOp,
        graph: FuncOp,
        sites: Sequence[Site],
        moments: dict[str, Moments],
        store: WeightStore,
    ) -> None:
        """Runs the graph over the calibration inputs; adds to the moments of each site's name."""
        samples = graph_inputs(self.data, _name(graph))
        if not samples:
            where = f"{self.data}/{_name(graph)}" if self.data else "an option `data`"
            raise _misfit(_name(graph), f"no calibration inputs in {where}")
        for site in sites:
            moments.setdefault(site.name, Moments.none(site.attention.head_count, site.width))
        watched = {site.attention: moments[site.name] for site in sites}
        for sample in samples:
            watch = _Watch(watched, graph, sample)
            run_function(module, _name(graph), sample, store, listener=watch)

    def _choose(self, site: Site, moments: Moments, store: WeightStore) -> list[int]:
        """The groups that stay."""
        attention = site.attention
        group = attention.head_count // site.groups
        heads = self.heads or max(1, round(self.share * attention.head_count))
        keep = max(1, heads // group)
        if heads % group and self.heads:
            raise _misfit(location_of(attention), f"its heads go in groups of {group}")
        if keep >= site.groups:
            raise _misfit(location_of(attention), f"it has {attention.head_count} heads")
        if self.score == "entropy":
            return most_informed(moments, site.groups, keep)
        weight = elements_of(site.output.weight, store)
        assert weight is not None
        return least_missed(moments, weight, site.groups, keep, self.ridge)


class _Watch:
    """Sees what attention reads and makes while a graph runs, and adds it to the moments."""

    def __init__(
        self, moments: dict[AttentionOp, Moments], graph: FuncOp, sample: dict[str, Array]
    ) -> None:
        self.moments = moments
        self.wanted: set[SSAValue] = {v for attention in moments for v in attention.operands}
        named = zip(graph.args, argument_names(graph), strict=True)
        self.held: dict[SSAValue, Array] = {
            v: sample[name] for v, name in named if v in self.wanted
        }

    def __call__(self, op: Operation, results: Sequence[Array]) -> None:
        """Keeps what attention reads; takes the moments of an attention."""
        made = zip(op.results, results, strict=True)
        self.held |= {value: array for value, array in made if value in self.wanted}
        if not isinstance(op, AttentionOp) or op not in self.moments:
            return
        weights = attention_weights(op, [self.held[v] for v in op.operands])
        self.moments[op].add(results[0], weights)


def _name(graph: FuncOp) -> str:
    return graph.sym_name.data


def _misfit(where: str, why: str) -> CompileError:
    return CompileError(
        "MLC-P021",
        f"its heads cannot be cut: {why}",
        location=where,
        remedy="give other options (docs/pruning.md)",
    )
