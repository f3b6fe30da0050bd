"""Which cuts to try, and in which order: bisection first, then delta debugging to a fixed point.

Nothing is random and no candidate is tried twice, so that one model and one test give one answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from onnx import ModelProto

from mllm_compiler.reduce import cuts, simplify
from mllm_compiler.reduce.proto import Types, node_count

Cut = Callable[[ModelProto, Collection[str], Types], ModelProto | None]
"""Takes away what is named."""


@dataclass(frozen=True)
class Strategy:
    """A way to make a model smaller.

    Attributes:
        what: What is taken away, for the progress.
        units: The names of what can be taken away.
        cut: Takes some of it away.
        single: Whether only one unit at a time can be cut.
    """

    what: str
    units: Callable[[ModelProto], list[str]]
    cut: Cut
    single: bool = False


STRATEGIES = (
    Strategy("graphs inside nodes", simplify.body_names, simplify.hoisted, single=True),
    Strategy("outputs", cuts.output_names, cuts.without_outputs),
    Strategy("nodes", cuts.node_keys, cuts.without_nodes),
    Strategy("detours", cuts.node_keys, cuts.bypassed),
    Strategy("weights", simplify.weight_names, simplify.as_inputs),
    Strategy("arguments", simplify.argument_names, simplify.without_arguments),
    Strategy("attributes", simplify.attribute_names, simplify.without_attributes),
)
"""The strategies of a round, those first that take most away."""


@dataclass
class Search:
    """The smallest model so far, and how to go on from it.

    Attributes:
        best: The smallest model that shows the failure.
        shows: Whether a model shows the failure.
        types: The types of the values of the first model.
        step: Is told what is tried.
        limit: How many models may be tried.
        tries: How many were.
    """

    best: ModelProto
    shows: Callable[[ModelProto], bool]
    types: Types
    step: Callable[[str], None]
    limit: int
    tries: int = 0
    _seen: dict[bytes, bool] = field(default_factory=dict[bytes, bool])

    def accept(self, candidate: ModelProto | None, what: str) -> bool:
        """Tries a model; where it shows the failure, it is the best one from now on."""
        if candidate is None or not self._is_new_failure(candidate, what):
            return False
        self.best = candidate
        return True

    def bisect(self) -> None:
        """Finds the shortest beginning of the graph that fails, and then its shortest end."""
        self._shortest(cuts.prefix, "beginnings", from_end=False)
        for name in reversed(cuts.output_names(self.best)):
            others = {*cuts.output_names(self.best)} - {name}
            if self.accept(cuts.without_outputs(self.best, others, self.types), "outputs"):
                break
        self._shortest(cuts.suffix, "ends", from_end=True)

    def settle(self) -> None:
        """Applies the strategies until none of them makes the model smaller."""
        before = None
        while before != self.best and self.tries < self.limit:
            before = self.best
            for strategy in STRATEGIES:
                self.take_away(strategy)

    def take_away(self, strategy: Strategy) -> None:
        """Cuts in large pieces first, then in pieces of half the size, down to single units."""
        size = 1 if strategy.single else max(1, len(strategy.units(self.best)))
        while size and self.tries < self.limit:
            self._pieces(strategy, size)
            size = min(size, len(strategy.units(self.best))) // 2

    def _pieces(self, strategy: Strategy, size: int) -> None:
        left: Sequence[str] = strategy.units(self.best)
        while left and self.tries < self.limit:
            piece, left = left[-size:], left[:-size]
            if self.accept(strategy.cut(self.best, {*piece}, self.types), strategy.what):
                there = {*strategy.units(self.best)}
                left = [unit for unit in left if unit in there]

    def _shortest(
        self,
        cut: Callable[[ModelProto, int, Types], ModelProto | None],
        what: str,
        *,
        from_end: bool,
    ) -> None:
        """Bisects the number of nodes; where failing does not grow with it, some cut is found."""
        whole = self.best
        low, high = 0, len(whole.graph.node)
        while low < high and self.tries < self.limit:
            middle = (low + high + from_end) // 2
            if self.accept(cut(whole, middle, self.types), what) is from_end:
                low = middle if from_end else middle + 1
            else:
                high = middle - 1 if from_end else middle

    def _is_new_failure(self, candidate: ModelProto, what: str) -> bool:
        if self.tries >= self.limit:
            return False
        digest = hashlib.sha256(candidate.SerializeToString(deterministic=True)).digest()
        if digest not in self._seen:
            self.tries += 1
            self.step(f"try {self.tries}: {node_count(self.best)} nodes, cutting {what}")
            self._seen[digest] = self.shows(candidate)
            return self._seen[digest]
        return False
