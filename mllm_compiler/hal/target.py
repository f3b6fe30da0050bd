"""Targets and their support tables: may this op run here, and if not, why not.

The tables are data, `hal/targets/<name>/support.toml`; the only code about support is this file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, Final, cast

from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.utils.str_enum import StrEnum

from mllm_compiler.dialects.dims import dims_of
from mllm_compiler.dialects.mllm import ConstantOp, WeightOp
from mllm_compiler.dialects.onnx import CustomOp
from mllm_compiler.dialects.types import element_of, ranked
from mllm_compiler.hal.cost import Cost, cost_of
from mllm_compiler.hal.rates import Rates, rates_of
from mllm_compiler.hal.rules import Limit, Refusal, Rule, limit_of
from mllm_compiler.hal.soc import Soc, find_soc, soc_of

TABLES: Final = files("mllm_compiler.hal") / "targets"


DATA_DEPENDENT, SYMBOLIC, STATIC = SHAPES = ("data-dependent", "symbolic", "static")
"""Sizes that are known when the model runs, when its inputs are, or when it is compiled."""


@dataclass(frozen=True)
class Answer:
    """Whether an op runs on a target.

    Attributes:
        kernel: What runs it; empty where nothing does.
        refusal: The rule that is against it.
        remedy: What a user can do where it does not run.
        cost: What it costs.
    """

    kernel: str
    refusal: Refusal | None
    remedy: str
    cost: Cost

    @property
    def ok(self) -> bool:
        """It does."""
        return self.refusal is None

    @property
    def reason(self) -> str:
        """The kernel that runs it, or what is missing."""
        return self.kernel if self.refusal is None else self.refusal.reason


@dataclass(frozen=True, kw_only=True)
class OpSupport:
    """One entry of a table.

    Attributes:
        kernel: What runs the op.
        dtypes: The element types of its operands and results.
        weights: Those that only weights and constants among its operands may have too.
        results: Those that only its results may have.
        ranks: The least rank of its first operand, and the largest of that and of its results.
        kinds: The values of the property `kind` by the element type of the first operand.
        limits: Bounds on extents and properties.
        rewrites: What to write instead, by the rule that refuses the op.
        notes: What a reader should know.
    """

    kernel: str
    dtypes: tuple[str, ...]
    weights: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    ranks: tuple[int, int] = (0, 8)
    kinds: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    limits: tuple[Limit, ...] = ()
    rewrites: Mapping[str, str] = field(default_factory=dict[str, str])
    notes: str = ""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A target as its table describes it.

    Attributes:
        name: Its name on the command line.
        title: What it is.
        source: What the table was made from.
        shapes: Which sizes it takes, one of `SHAPES`.
        dialects: Dialects that run as a whole.
        rates: How fast it computes, reads and is called.
        ops: The entries by op name.
        socs: Its chips, the default one first; a target may have none.
        halves: Whether reals are computed as halves.
        falls_to: Where an op may run that it refuses, the fastest first.
        backend: Whether the compiler makes something for it; otherwise it is a table only.
        operators: Those of its file format that its compiler takes; empty: all.
    """

    name: str
    title: str
    source: str
    shapes: str
    dialects: tuple[str, ...]
    rates: Rates
    ops: Mapping[str, OpSupport]
    socs: Mapping[str, Soc] = field(default_factory=dict[str, Soc])
    halves: bool = False
    falls_to: tuple[str, ...] = ()
    backend: bool = True
    operators: frozenset[str] = frozenset()

    def soc(self, name: str | None) -> Soc:
        """The chip of a name; without one the default.

        Raises:
            CompileError: `MLC-R007`, there is no such chip.
        """
        return find_soc(self.socs, next(iter(self.socs), "") if name is None else name, self.name)

    def supports(self, op: Operation, env: Mapping[str, int]) -> Answer:
        """Whether the op runs here, and what it costs with the symbols of `env`."""
        cost, refusal = cost_of(op, env), self.refusal(op, env)
        if refusal is not None:
            return Answer("", refusal, self._remedy(op, refusal, env), cost)
        entry = self.ops.get(op.name)
        return Answer(self.title if entry is None else entry.kernel, None, "", cost)

    def refusal(self, op: Operation, env: Mapping[str, int]) -> Refusal | None:
        """The first rule against the op, with what to write instead; None where it runs."""
        known = op.name.partition(".")[0] in self.dialects
        if known and not isinstance(op, CustomOp):
            return None
        entry = self.ops.get(op.name)
        found = _unknown(op) if entry is None else self._against(op, entry, env)
        if found is None or found.rewrite:
            return found
        own = "" if entry is None else entry.rewrites.get(found.rule, "")
        by_rule, by_op = shared_rewrites()
        rewrite = own or by_op.get(op.name, "") or by_rule.get(found.rule, "")
        return replace(found, rewrite=rewrite)

    def _against(self, op: Operation, entry: OpSupport, env: Mapping[str, int]) -> Refusal | None:
        """The rule of an entry that the op breaks."""
        values = [*op.operands, *op.results]
        elements = [e for v in values if (e := _element(v))]
        wrong = {e for v in values if (e := _element(v)) and e not in _allowed(entry, op, v)}
        if wrong:
            got, allowed = ", ".join(sorted(wrong)), ", ".join(entry.dtypes)
            return Refusal(Rule.DTYPE, f"no kernel for {got}, only for {allowed}", got, allowed)
        if (shape := self._against_shapes(values)) is not None:
            return shape
        ranks = [_rank(value) for value in (*values[:1], *op.results)]
        rank = next((r for r in ranks if r > entry.ranks[1]), ranks[0] if ranks else 0)
        if not entry.ranks[0] <= rank <= entry.ranks[1]:
            allowed = f"{entry.ranks[0]} to {entry.ranks[1]}"
            reason = f"no kernel for rank {rank}, only for {allowed}"
            return Refusal(Rule.RANK, reason, str(rank), allowed)
        kinds = entry.kinds.get(elements[0] if elements else "")
        word = _word(op.properties.get("kind"))
        if word and kinds and word not in kinds:
            reason = f"'{word}' has no {elements[0]} kernel"
            return Refusal(Rule.KIND, reason, word, ", ".join(kinds))
        broken = (limit.refusal(op, env) for limit in entry.limits)
        return next((refusal for refusal in broken if refusal is not None), None)

    def _against_shapes(self, values: Sequence[SSAValue]) -> Refusal | None:
        """Why a size of the values is not one that the target takes."""
        if self.shapes != DATA_DEPENDENT and any(map(_data_dependent, values)):
            reason = "a size depends on data, memory cannot be planned"
            return Refusal(Rule.SHAPE, reason, "?", "expressions over the sizes of inputs")
        dims = [d for v in values if (t := ranked(v)) is not None for d in dims_of(t)]
        open_dims = sorted({symbol for d in dims for symbol in d.symbols()})
        if self.shapes == STATIC and open_dims:
            size = open_dims[0]
            fix = f"fix it with --dim {size}=N, or make buckets of it with --dim {size}=1,32"
            return Refusal(Rule.SHAPE, f"the size '{size}' is not fixed", size, "fixed sizes", fix)
        return None

    def _remedy(self, op: Operation, refusal: Refusal, env: Mapping[str, int]) -> str:
        others = [t for t in target_names() if t != self.name]
        made = [n for n in others if target(n).backend]
        able = [n for n in made if target(n).refusal(op, env) is None]
        where = f"compile with --target {able[0]}, or " if able else ""
        return f"{where}{refusal.rewrite or 'change the op in the model'}"


@cache
def shared_rewrites() -> tuple[Mapping[str, str], Mapping[str, str]]:
    """What to write instead on any target: by rule, and by the name of an op."""
    table = tomllib.loads(TABLES.joinpath("rewrites.toml").read_text(encoding="utf-8"))
    return table["rules"], table["operators"]


def _unknown(op: Operation) -> Refusal:
    """Why an op without an entry does not run."""
    if isinstance(op, CustomOp):
        return Refusal(Rule.OPERATOR, "no operator of that name is known")
    if op.name.startswith("onnx."):
        return Refusal(Rule.LIFTING, "it was not lifted from ONNX")
    return Refusal(Rule.OPERATOR, "no kernel")


@cache
def target(name: str) -> Target:
    """The target of a name.

    Raises:
        KeyError: There is no such target.
    """
    if name not in target_names():
        raise KeyError(name)
    return target_of(tomllib.loads((TABLES / name / "support.toml").read_text(encoding="utf-8")))


def target_of(table: dict[str, Any]) -> Target:
    """The target that a table describes."""
    return Target(
        name=table["name"],
        title=table["title"],
        source=table["source"],
        shapes=table["shapes"],
        dialects=tuple(table["dialects"]),
        rates=rates_of(table["cost"]),
        ops={op: _entry(entry) for op, entry in table.get("ops", {}).items()},
        halves=table.get("halves", False),
        falls_to=tuple(table.get("falls_to", ())),
        backend=table.get("backend", True),
        operators=frozenset(table.get("operators", ())),
        socs={name: soc_of(name, entry) for name, entry in table.get("socs", {}).items()},
    )


def target_names() -> tuple[str, ...]:
    """The targets that have a table, sorted."""
    return tuple(sorted(p.name for p in TABLES.iterdir() if (p / "support.toml").is_file()))


def _entry(entry: dict[str, Any]) -> OpSupport:
    ranks: list[int] = entry.get("ranks", [0, 8])
    return OpSupport(
        kernel=entry["kernel"],
        dtypes=tuple(entry["dtypes"]),
        weights=tuple(entry.get("weights", [])),
        results=tuple(entry.get("results", [])),
        ranks=(ranks[0], ranks[1]),
        kinds={dtype: tuple(kinds) for dtype, kinds in entry.get("kinds", {}).items()},
        limits=tuple(map(limit_of, entry.get("limits", []))),
        rewrites=entry.get("rewrites", {}),
        notes=entry.get("notes", ""),
    )


def _element(value: SSAValue) -> str:
    return "" if ranked(value) is None else str(element_of(value))


def _allowed(entry: OpSupport, op: Operation, value: SSAValue) -> tuple[str, ...]:
    """The element types that an operand or a result may have."""
    if value.owner is op:
        return (*entry.dtypes, *entry.results)
    stored = isinstance(value.owner, WeightOp | ConstantOp)
    return (*entry.dtypes, *entry.weights) if stored else entry.dtypes


def _word(kind: Attribute | None) -> str:
    """The word of an enumeration."""
    return str(cast("EnumAttribute[StrEnum]", kind).data) if isinstance(kind, EnumAttribute) else ""


def _data_dependent(value: SSAValue) -> bool:
    type = ranked(value)
    return type is None or any(d.unknown for d in dims_of(type))


def _rank(value: SSAValue) -> int:
    type = ranked(value)
    return 0 if type is None else type.get_num_dims()
