"""The one driver of rewrite patterns: to a fixpoint, by op class, keeping locations.

A pattern is a function from an op class's matched op and a rewriter; `On` ties it to the class. The
driver tries only the patterns of an op's class, erases pure ops that a rewrite left without a user,
and gives what a pattern inserts the location of the op that it matched.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from xdsl.dialects.builtin import ModuleOp, UnknownLoc
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriterListener, RewritePattern
from xdsl.transforms.dead_code_elimination import is_trivially_dead

OpT = TypeVar("OpT", bound=Operation)


@dataclass(frozen=True)
class On(RewritePattern, Generic[OpT]):
    """A pattern on the ops of one class.

    Attributes:
        root: The class.
        apply: Rewrites the matched op, or leaves everything as it is.
    """

    root: type[OpT]
    apply: Callable[[OpT, PatternRewriter], None]

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """Applies the pattern where the op is of its class."""
        if isinstance(op, self.root):
            self.apply(op, rewriter)


class _Driver:
    """A worklist of ops, the last pushed first."""

    def __init__(self, patterns: Sequence[RewritePattern]) -> None:
        self.general = tuple(p for p in patterns if not hasattr(p, "root"))
        self.by_root: dict[type[Operation], list[RewritePattern]] = defaultdict(list)
        for pattern in patterns:
            if hasattr(pattern, "root"):
                self.by_root[cast("On[Operation]", pattern).root].append(pattern)
        self.pending: dict[Operation, None] = {}
        self.location: Operation | None = None
        self.changed = False
        self.listener = PatternRewriterListener(
            operation_insertion_handler=[self._inserted],
            operation_removal_handler=[self._removed],
            operation_modification_handler=[self._push],
            operation_replacement_handler=[self._replaced],
        )

    def run(self, module: ModuleOp) -> bool:
        """Walks the module until a walk changes nothing; answers whether any did."""
        walks = 0
        while self._walk(module):
            walks += 1
        return walks > 0

    def _walk(self, module: ModuleOp) -> bool:
        self.changed = False
        for op in reversed(list(module.walk())):
            self.pending[op] = None
        rewriter: PatternRewriter | None = None
        while self.pending:
            op, _ = self.pending.popitem()
            if op.parent is None:
                continue
            if rewriter is None:
                rewriter = PatternRewriter(op)
                rewriter.extend_from_listener(self.listener)
            self._visit(op, rewriter)
        return self.changed

    def _visit(self, op: Operation, rewriter: PatternRewriter) -> None:
        rewriter.current_operation = op
        if op.results and is_trivially_dead(op):
            rewriter.erase(op)
            self.changed = True
            return
        for pattern in (*self.by_root.get(type(op), ()), *self.general):
            rewriter.has_done_action = False
            self.location = op
            pattern.match_and_rewrite(op, rewriter)
            self.changed |= rewriter.has_done_action
            if op.parent is None:
                return

    def _push(self, op: Operation) -> None:
        self.pending.pop(op, None)
        self.pending[op] = None

    def _inserted(self, op: Operation) -> None:
        if isinstance(op.location, UnknownLoc) and self.location is not None:
            op.location = self.location.location
        self._push(op)

    def _removed(self, op: Operation) -> None:
        self.pending.pop(op, None)
        for operand in op.operands:
            if isinstance(operand.owner, Operation):
                self._push(operand.owner)

    def _replaced(self, op: Operation, new_results: Sequence[SSAValue | None]) -> None:
        for result in op.results:
            for use in result.uses:
                self._push(use.operation)


def rewrite(module: ModuleOp, *patterns: RewritePattern) -> bool:
    """Applies patterns until none matches.

    Args:
        module: Rewritten in place.
        patterns: Tried in this order on each op; those made with `On` only on ops of their class.

    Returns:
        Whether anything changed.
    """
    return _Driver(patterns).run(module)


def substitute(rewriter: PatternRewriter, old: Operation, *new: Operation) -> None:
    """Replaces `old` by `new`, whose last op gives the result; the result keeps its old type.

    Two spellings of a dim may be equal only at run time (`total` and `past + sequence`); keeping
    the type keeps every user, and the function's signature, as it was.
    """
    retype(new[-1], old)
    rewriter.replace(old, new)


def retype(new: Operation, old: Operation) -> None:
    """Gives the results of an op that is not inserted yet the types of another op's results."""
    for made, former in zip(new.results, old.results, strict=True):
        made._type = former.type  # pyright: ignore[reportPrivateUsage]
