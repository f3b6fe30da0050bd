"""Reads TOML and JSON tables into frozen dataclasses; errors name the key and what was meant."""

from __future__ import annotations

import dataclasses
import json
import tomllib
import types
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from mllm_compiler.errors import CompileError

_T = TypeVar("_T")


def load_toml(file: Path) -> dict[str, object]:
    """The tables of a TOML file.

    Raises:
        CompileError: It cannot be read, or is no TOML.
    """
    text = _text(file, "MLC-I020", "TOML")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _not(file, "MLC-I020", "TOML", error) from error


def load_json(file: Path) -> dict[str, object]:
    """The object of a JSON file; keys and elements that are null are left out.

    Raises:
        CompileError: It cannot be read, or is no JSON object.
    """
    text = _text(file, "MLC-I024", "JSON")
    try:
        value = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise _not(file, "MLC-I024", "JSON", error) from error
    if not isinstance(value, dict):
        raise wrong(file.name, "", "an object is expected", "write { ... }")
    return cast("dict[str, object]", _without_nulls(cast("object", value)))


def _text(file: Path, code: str, kind: str) -> str:
    try:
        return file.read_text("utf-8")
    except OSError as error:
        raise CompileError(
            "MLC-I003",
            f"the file cannot be read: {error.strerror}",
            location=str(file),
            remedy="check the path",
        ) from error
    except UnicodeDecodeError as error:
        raise _not(file, code, kind, error) from error


def _not(file: Path, code: str, kind: str, error: Exception) -> CompileError:
    remedy = "correct the line it names"
    return CompileError(code, f"not {kind}: {error}", location=str(file), remedy=remedy)


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        pairs = cast("dict[str, object]", value).items()
        return {k: _without_nulls(v) for k, v in pairs if v is not None}
    if isinstance(value, list):
        return [_without_nulls(v) for v in cast("list[object]", value) if v is not None]
    return value


def typed(
    cls: type[_T], table: Mapping[str, object], *, file: str, at: str = "", closed: bool = True
) -> _T:
    """The dataclass `cls` of a table; a key of the table is a field of the class.

    A field's metadata may give it another `key`, or none (empty). Where the table is not closed,
    keys that are no field are passed over, here and in tables inside.

    Raises:
        CompileError: A key is unknown or missing, or a value has another type.
    """
    hints = get_type_hints(cls)
    all_fields = dataclasses.fields(cast(Any, cls))
    fields = {f.metadata.get("key", f.name): f for f in all_fields if f.metadata.get("key") != ""}
    for key in table:
        if closed and key not in fields:
            raise _unknown(key, list(fields), file=file, at=at)
    values: dict[str, object] = {}
    for key, field in fields.items():
        where = f"{at}.{key}" if at else key
        if key in table:
            hint = hints[field.name]
            values[field.name] = _value(hint, table[key], file=file, at=where, closed=closed)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise missing(file, where, table)
    return cls(**values)


def missing(file: str, at: str, table: Mapping[str, object]) -> CompileError:
    """The error of a key that a table must have."""
    key = at.rpartition(".")[2]
    near = get_close_matches(key, table, n=1, cutoff=0.8)
    remedy = f"rename '{near[0]}'" if near else f"give {key}"
    return wrong(file, at, "the key is missing", remedy)


def wrong(file: str, at: str, message: str, remedy: str) -> CompileError:
    """The error of a key whose value cannot be used."""
    location = f"{file}: {at}" if at else file
    return CompileError("MLC-I022", message, location=location, remedy=remedy)


def _unknown(key: str, known: list[str], *, file: str, at: str) -> CompileError:
    near = get_close_matches(key, known, n=1, cutoff=0.5)
    remedy = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(known)}"
    where = f"{at}.{key}" if at else key
    return CompileError(
        "MLC-I021", f"unknown key '{key}'", location=f"{file}: {where}", remedy=remedy
    )


def _value(hint: Any, value: object, *, file: str, at: str, closed: bool) -> object:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        chosen = _alternative(args, value)
        return _value(chosen, value, file=file, at=at, closed=closed)
    if dataclasses.is_dataclass(hint):
        table = _expect(value, dict, "a table", file, at)
        return typed(cast("type[object]", hint), table, file=file, at=at, closed=closed)
    if origin is Mapping:
        table = cast("dict[str, object]", _expect(value, dict, "a table", file, at))
        return {
            k: _value(args[1], v, file=file, at=f"{at}.{k}", closed=closed)
            for k, v in table.items()
        }
    if origin is tuple:
        return _tuple(args, value, file=file, at=at)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return _expect(value, hint, _WORDS[hint], file, at)


def _alternative(args: tuple[Any, ...], value: object) -> Any:
    """The member of a union that a value is meant to be."""
    given = [a for a in args if a is not type(None)]
    if isinstance(value, list):
        return next((a for a in given if get_origin(a) is tuple), given[0])
    return next((a for a in given if a is type(value)), given[0])


_WORDS = {str: "a text", int: "an integer", float: "a number", bool: "true or false"}


def _tuple(args: tuple[Any, ...], value: object, *, file: str, at: str) -> tuple[object, ...]:
    items = cast("list[object]", _expect(value, list, "a list", file, at))
    if args[-1] is not Ellipsis and len(args) != len(items):
        raise wrong(file, at, f"{len(items)} values given, {len(args)} needed", "correct the list")
    return tuple(
        _value(args[0], v, file=file, at=f"{at}[{i}]", closed=True) for i, v in enumerate(items)
    )


def _expect(value: object, cls: Any, word: str, file: str, at: str) -> Any:
    if not isinstance(value, cls) or (isinstance(value, bool) and cls is not bool):
        raise wrong(file, at, f"{word} is expected, not {value!r}"[:200], f"write {word}")
    return value
