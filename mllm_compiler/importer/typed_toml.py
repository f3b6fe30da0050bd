"""Reads TOML tables into frozen dataclasses, with errors that name the key and what was meant."""

from __future__ import annotations

import dataclasses
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
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise CompileError(
            "MLC-I003",
            f"the file cannot be read: {error.strerror}",
            location=str(file),
            remedy="check the path",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CompileError(
            "MLC-I020", f"not TOML: {error}", location=str(file), remedy="correct the line it names"
        ) from error


def typed(cls: type[_T], table: Mapping[str, object], *, file: str, at: str = "") -> _T:
    """The dataclass `cls` of a table; a key of the table is a field of the class.

    A field's metadata may give it another `key`, or none (empty).

    Raises:
        CompileError: A key is unknown or missing, or a value has another type.
    """
    hints = get_type_hints(cls)
    all_fields = dataclasses.fields(cast(Any, cls))
    fields = {f.metadata.get("key", f.name): f for f in all_fields if f.metadata.get("key") != ""}
    for key in table:
        if key not in fields:
            raise _unknown(key, list(fields), file=file, at=at)
    values: dict[str, object] = {}
    for key, field in fields.items():
        where = f"{at}.{key}" if at else key
        if key in table:
            values[field.name] = _value(hints[field.name], table[key], file=file, at=where)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise wrong(file, where, "the key is missing", f"give {key}")
    return cls(**values)


def wrong(file: str, at: str, message: str, remedy: str) -> CompileError:
    """The error of a key whose value cannot be used."""
    return CompileError("MLC-I022", message, location=f"{file}: {at}", remedy=remedy)


def _unknown(key: str, known: list[str], *, file: str, at: str) -> CompileError:
    near = get_close_matches(key, known, n=1, cutoff=0.5)
    remedy = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(known)}"
    where = f"{at}.{key}" if at else key
    return CompileError(
        "MLC-I021", f"unknown key '{key}'", location=f"{file}: {where}", remedy=remedy
    )


def _value(hint: Any, value: object, *, file: str, at: str) -> object:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _value(next(a for a in args if a is not type(None)), value, file=file, at=at)
    if dataclasses.is_dataclass(hint):
        table = _expect(value, dict, "a table", file, at)
        return typed(cast("type[object]", hint), table, file=file, at=at)
    if origin is Mapping:
        table = cast("dict[str, object]", _expect(value, dict, "a table", file, at))
        return {k: _value(args[1], v, file=file, at=f"{at}.{k}") for k, v in table.items()}
    if origin is tuple:
        return _tuple(args, value, file=file, at=at)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return _expect(value, hint, _WORDS[hint], file, at)


_WORDS = {str: "a text", int: "an integer", float: "a number", bool: "true or false"}


def _tuple(args: tuple[Any, ...], value: object, *, file: str, at: str) -> tuple[object, ...]:
    items = cast("list[object]", _expect(value, list, "a list", file, at))
    if args[-1] is not Ellipsis and len(args) != len(items):
        raise wrong(file, at, f"{len(items)} values given, {len(args)} needed", "correct the list")
    return tuple(_value(args[0], v, file=file, at=f"{at}[{i}]") for i, v in enumerate(items))


def _expect(value: object, cls: Any, word: str, file: str, at: str) -> Any:
    if not isinstance(value, cls) or (isinstance(value, bool) and cls is not bool):
        raise wrong(file, at, f"{word} is expected, not {value!r}"[:200], f"write {word}")
    return value
