"""What a table can say against an op: kinds of rules, limits, and the answer as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr
from xdsl.ir import Operation
from xdsl.utils.str_enum import StrEnum

from mllm_compiler.dialects.types import ranked, shape_of


class Rule(StrEnum):
    """What kind of rule refuses an op."""

    OPERATOR = "operator"
    LIFTING = "lifting"
    DTYPE = "dtype"
    SHAPE = "shape"
    RANK = "rank"
    KIND = "kind"
    SIZE = "size"
    ALIGNMENT = "alignment"
    CACHE = "cache"


@dataclass(frozen=True)
class Refusal:
    """Why an op does not run.

    Attributes:
        rule: The kind of the rule.
        reason: The rule in words.
        got: What the op has.
        allowed: What the target takes.
        rewrite: What to write instead, as a clause; empty where the table does not say.
    """

    rule: Rule
    reason: str
    got: str = ""
    allowed: str = ""
    rewrite: str = ""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A bound on the extents of an operand or result, or on the integers of a property.

    Attributes:
        of: `operand 1`, `result 0`, or the name of a property.
        axis: The axis of an operand or result; all of them where it is not given.
        least: The smallest value.
        most: The largest value.
        multiple: What a value must be a multiple of.
        rewrite: What to write instead.
    """

    of: str
    axis: int | None = None
    least: int = 0
    most: int | None = None
    multiple: int = 1
    rewrite: str = ""

    def refusal(self, op: Operation, env: Mapping[str, int]) -> Refusal | None:
        """Why the op breaks the limit; None where it keeps it."""
        for value in self._values(op, env):
            if value < self.least or (self.most is not None and value > self.most):
                top = "" if self.most is None else f" to {self.most}"
                span = f"{self.least}{top}" if top else f"at least {self.least}"
                return self._broken(Rule.SIZE, value, span)
            if value % self.multiple:
                return self._broken(Rule.ALIGNMENT, value, f"a multiple of {self.multiple}")
        return None

    def _broken(self, rule: Rule, value: int, allowed: str) -> Refusal:
        at = "" if self.axis is None else f" along axis {self.axis}"
        reason = f"{self.of}{at} is {value}, only {allowed} runs"
        return Refusal(rule, reason, str(value), allowed, self.rewrite)

    def _values(self, op: Operation, env: Mapping[str, int]) -> Sequence[int]:
        side, _, index = self.of.partition(" ")
        if not index:
            return _integers(op.properties.get(self.of))
        among = op.operands if side == "operand" else op.results
        if int(index) >= len(among) or ranked(among[int(index)]) is None:
            return ()
        dims = shape_of(among[int(index)])
        chosen = dims if self.axis is None else dims[self.axis :][:1]
        return [d.evaluate(env) for d in chosen if not d.unknown]


def _integers(attribute: object) -> Sequence[int]:
    if isinstance(attribute, IntegerAttr):
        return (attribute.value.data,)
    return tuple(attribute.get_values()) if isinstance(attribute, DenseArrayBase) else ()


def limit_of(entry: Mapping[str, Any]) -> Limit:
    """A limit as a table spells it: `{of = "operand 1", axis = -1, multiple = 32}`."""
    return Limit(**entry)
