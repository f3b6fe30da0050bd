"""Operator schemas: the standard's own, read from `onnx.defs`, and the `com.microsoft` data.

Both become one plain form, so that the dialect and its verifier treat them alike.
"""

from __future__ import annotations

import tomllib
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from onnx.defs import OpSchema

PREFIXES: Final[dict[str, str]] = {
    "": "onnx.",
    "ai.onnx.ml": "onnx.ml.",
    "ai.onnx.preview": "onnx.preview.",
    "ai.onnx.preview.training": "onnx.training.",
    "com.microsoft": "onnx.microsoft.",
}
"""The IR name of an operator is its domain's prefix and its ONNX name."""


@dataclass(frozen=True)
class Formal:
    """An input or output of an operator.

    Attributes:
        name: Its name in the standard.
        option: `single` (must be there), `optional` or `variadic`.
        type: A type string, or the name of a type parameter.
        homogeneous: Of a variadic one, whether all its values share the type.
    """

    name: str
    option: str
    type: str
    homogeneous: bool = True


@dataclass(frozen=True)
class AttributeFormal:
    """An attribute of an operator: its kind in lower case (`int`, `floats`, `graph`)."""

    name: str
    kind: str
    required: bool
    default: object = None


@dataclass(frozen=True)
class Schema:
    """One operator as of one opset version."""

    domain: str
    name: str
    since: int
    deprecated: bool
    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    min_inputs: int
    min_outputs: int
    attributes: Mapping[str, AttributeFormal]
    read_constraints: Callable[[], dict[str, frozenset[str]]]
    read_doc: Callable[[], str]

    @cached_property
    def constraints(self) -> dict[str, frozenset[str]]:
        """The type strings that each type parameter allows; read at first use."""
        return self.read_constraints()

    @cached_property
    def doc(self) -> str:
        """What the standard says of the operator."""
        return self.read_doc()

    @property
    def max_inputs(self) -> int | None:
        """The largest number of inputs; None where the last one is variadic."""
        return None if self.inputs and self.inputs[-1].option == "variadic" else len(self.inputs)

    @property
    def max_outputs(self) -> int | None:
        """The largest number of outputs; None where the last one is variadic."""
        return None if self.outputs and self.outputs[-1].option == "variadic" else len(self.outputs)


def ir_name(domain: str, name: str) -> str | None:
    """The IR name of an operator; None for a domain that the dialect has no schemas of."""
    domain = "" if domain == "ai.onnx" else domain
    prefix = PREFIXES.get(domain)
    return None if prefix is None or f"{prefix}{name}" not in histories() else f"{prefix}{name}"


@cache
def histories() -> dict[str, tuple[Schema, ...]]:
    """Every operator's schemas by IR name, oldest version first."""
    from onnx.defs import get_all_schemas_with_history

    found: dict[str, list[Schema]] = {}
    for raw in get_all_schemas_with_history():
        schema = _of_standard(raw)
        found.setdefault(PREFIXES[schema.domain] + schema.name, []).append(schema)
    for schema in _microsoft():
        found.setdefault(PREFIXES[schema.domain] + schema.name, []).append(schema)
    return {name: tuple(sorted(s, key=lambda s: s.since)) for name, s in sorted(found.items())}


def schema_of(name: str, opset: int | None) -> Schema | None:
    """The schema of an IR name that is valid in `opset` (None: the newest).

    None where the operator is unknown, or younger than the opset.
    """
    history = histories().get(name, ())
    if opset is None:
        return history[-1] if history else None
    at = bisect_right(history, opset, key=lambda s: s.since)
    return history[at - 1] if at else None


_OPTIONS = {"Single": "single", "Optional": "optional", "Variadic": "variadic"}


def _of_standard(raw: OpSchema) -> Schema:
    return Schema(
        domain=raw.domain,
        name=raw.name,
        since=raw.since_version,
        deprecated=raw.deprecated,
        inputs=tuple(map(_formal, raw.inputs)),
        outputs=tuple(map(_formal, raw.outputs)),
        min_inputs=raw.min_input,
        min_outputs=raw.min_output,
        attributes={name: _attribute(a) for name, a in raw.attributes.items()},
        read_constraints=lambda: {
            c.type_param_str: frozenset(c.allowed_type_strs) for c in raw.type_constraints
        },
        read_doc=lambda: raw.doc or "",
    )


def _formal(parameter: OpSchema.FormalParameter) -> Formal:
    return Formal(
        parameter.name.rstrip("."),
        _OPTIONS[cast(Any, parameter.option).name],
        parameter.type_str,
        parameter.is_homogeneous,
    )


def _attribute(raw: OpSchema.Attribute) -> AttributeFormal:
    kind = cast(str, cast(Any, raw.type).name).lower()
    default = _default(kind, raw) if raw.default_value.type else None
    return AttributeFormal(raw.name, kind, raw.required, default)


def _default(kind: str, raw: OpSchema.Attribute) -> object:
    value = raw.default_value
    match kind:
        case "int":
            return value.i
        case "float":
            return value.f
        case "string":
            return value.s.decode()
        case "ints":
            return tuple(value.ints)
        case "floats":
            return tuple(value.floats)
        case "strings":
            return tuple(s.decode() for s in value.strings)
        case _:
            return None


def _microsoft() -> list[Schema]:
    text = files("mllm_compiler.dialects").joinpath("com_microsoft.toml").read_text("utf-8")
    table = tomllib.loads(text)
    groups = cast("dict[str, list[str]]", table.pop("types"))
    return [_of_table(name, entry, groups) for name, entry in table.items()]


def _of_table(name: str, entry: dict[str, object], groups: dict[str, list[str]]) -> Schema:
    inputs = tuple(_signature(s) for s in cast("list[str]", entry["inputs"]))
    outputs = tuple(_signature(s) for s in cast("list[str]", entry["outputs"]))
    types = {
        parameter: frozenset(f"tensor({t})" for group in names.split() for t in groups[group])
        for parameter, names in cast("dict[str, str]", entry["types"]).items()
    }
    attributes = {
        key: _table_attribute(key, value)
        for key, value in cast("dict[str, object]", entry.get("attributes", {})).items()
    }
    doc = cast(str, entry["doc"])
    return Schema(
        domain="com.microsoft",
        name=name,
        since=1,
        deprecated=False,
        inputs=inputs,
        outputs=outputs,
        min_inputs=_least(inputs),
        min_outputs=_least(outputs),
        attributes=attributes,
        read_constraints=lambda: types,
        read_doc=lambda: doc,
    )


def _signature(text: str) -> Formal:
    """Reads `name: T`, `T?` (optional), `T*` (variadic) or `T**` (variadic, of mixed types)."""
    name, type = text.split(": ")
    option = {"?": "optional", "*": "variadic"}.get(type[-1], "single")
    return Formal(name, option, type.rstrip("?*"), not type.endswith("**"))


def _least(formals: tuple[Formal, ...]) -> int:
    return max((i + 1 for i, f in enumerate(formals) if f.option == "single"), default=0)


def _table_attribute(name: str, value: object) -> AttributeFormal:
    """Reads a default value (its type is the kind), or `kind!` (required), `kind?` (optional)."""
    if isinstance(value, str) and value[-1:] in ("!", "?"):
        return AttributeFormal(name, value[:-1], value[-1] == "!")
    kind = {"int": "int", "float": "float", "str": "string"}[type(value).__name__]
    return AttributeFormal(name, kind, False, value)
