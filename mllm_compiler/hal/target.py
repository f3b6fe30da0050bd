"""Targets and their support tables: may this op run here, and if not, why not.

The tables are data, `hal/targets/<name>/support.toml`; the only code about support is this file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Final, cast

from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.utils.str_enum import StrEnum

from mllm_compiler.dialects.dims import dims_of
from mllm_compiler.dialects.types import element_of, ranked
from mllm_compiler.hal.cost import Cost, cost_of

TABLES: Final = files("mllm_compiler.hal") / "targets"


@dataclass(frozen=True)
class Answer:
    """Whether an op runs on a target.

    Attributes:
        ok: It does.
        reason: The kernel that runs it, or what is missing.
        remedy: What a user can do where it does not.
        cost: What it costs.
    """

    ok: bool
    reason: str
    remedy: str
    cost: Cost


@dataclass(frozen=True, kw_only=True)
class OpSupport:
    """One entry of a table.

    Attributes:
        kernel: What runs the op.
        dtypes: The element types of its operands and results.
        ranks: The least and the largest rank of its first operand.
        kinds: The values of the property `kind` by the element type of the first operand.
        notes: What a reader should know.
    """

    kernel: str
    dtypes: tuple[str, ...]
    ranks: tuple[int, int] = (0, 8)
    kinds: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    notes: str = ""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A target as its table describes it.

    Attributes:
        name: Its name on the command line.
        title: What it is.
        source: What the table was made from.
        data_dependent_shapes: Whether a size may be known only when the model runs.
        dialects: Dialects that run as a whole.
        startup_us: What a call costs before it computes, in microseconds.
        ops: The entries by op name.
    """

    name: str
    title: str
    source: str
    data_dependent_shapes: bool
    dialects: tuple[str, ...]
    startup_us: float
    ops: Mapping[str, OpSupport]

    def supports(self, op: Operation, env: Mapping[str, int]) -> Answer:
        """Whether the op runs here, and what it costs with the symbols of `env`."""
        cost = cost_of(op, env)
        missing = self._missing(op)
        if missing:
            return Answer(False, missing, self._remedy(op), cost)
        entry = self.ops.get(op.name)
        return Answer(True, self.title if entry is None else entry.kernel, "", cost)

    def _missing(self, op: Operation) -> str:
        """What the target lacks for the op; empty where it lacks nothing."""
        dialect = op.name.partition(".")[0]
        if dialect in self.dialects:
            return ""
        entry = self.ops.get(op.name)
        if entry is None:
            if op.name == "onnx.Custom":
                return "no operator of that name is known"
            return "it was not lifted from ONNX" if dialect == "onnx" else "no kernel"
        values = [*op.operands, *op.results]
        elements = [str(element_of(v)) for v in values if ranked(v) is not None]
        wrong = sorted(set(elements) - set(entry.dtypes))
        if wrong:
            return f"no kernel for {', '.join(wrong)}, only for {', '.join(entry.dtypes)}"
        if not self.data_dependent_shapes and any(map(_data_dependent, values)):
            return "a size depends on data, memory cannot be planned"
        rank = _rank(values[0]) if values else 0
        if not entry.ranks[0] <= rank <= entry.ranks[1]:
            return f"no kernel for rank {rank}, only for {entry.ranks[0]} to {entry.ranks[1]}"
        kind, kinds = op.properties.get("kind"), entry.kinds.get(elements[0] if elements else "")
        word = _word(kind)
        if word and kinds and word not in kinds:
            return f"'{word}' has no {elements[0]} kernel"
        return ""

    def _remedy(self, op: Operation) -> str:
        others = [t for t in target_names() if t != self.name]
        able = [n for n in others if not target(n)._missing(op)]
        where = f"compile with --target {able[0]}, or " if able else ""
        return f"{where}change the op in the model"


@cache
def target(name: str) -> Target:
    """The target of a name.

    Raises:
        KeyError: There is no such target.
    """
    if name not in target_names():
        raise KeyError(name)
    table = tomllib.loads((TABLES / name / "support.toml").read_text(encoding="utf-8"))
    return Target(
        name=table["name"],
        title=table["title"],
        source=table["source"],
        data_dependent_shapes=table["data_dependent_shapes"],
        dialects=tuple(table["dialects"]),
        startup_us=table["cost"]["startup_us"],
        ops={op: _entry(entry) for op, entry in table.get("ops", {}).items()},
    )


def target_names() -> tuple[str, ...]:
    """The targets that have a table, sorted."""
    return tuple(sorted(p.name for p in TABLES.iterdir() if (p / "support.toml").is_file()))


def _entry(entry: dict[str, Any]) -> OpSupport:
    ranks: list[int] = entry.get("ranks", [0, 8])
    return OpSupport(
        kernel=entry["kernel"],
        dtypes=tuple(entry["dtypes"]),
        ranks=(ranks[0], ranks[1]),
        kinds={dtype: tuple(kinds) for dtype, kinds in entry.get("kinds", {}).items()},
        notes=entry.get("notes", ""),
    )


def _word(kind: Attribute | None) -> str:
    """The word of an enumeration."""
    return str(cast("EnumAttribute[StrEnum]", kind).data) if isinstance(kind, EnumAttribute) else ""


def _data_dependent(value: SSAValue) -> bool:
    type = ranked(value)
    return type is None or any(d.unknown for d in dims_of(type))


def _rank(value: SSAValue) -> int:
    type = ranked(value)
    return 0 if type is None else type.get_num_dims()
