"""JSON to and from frozen dataclasses; a fault names the key's path.

A field whose metadata has `SPARSE` is left out where it is empty.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Final, TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""A value that JSON can hold."""

T = TypeVar("T")

SPARSE: Final = "sparse"
"""Metadata of a field that has an empty default, and no key where it is empty."""


class ShapeError(ValueError):
    """JSON that is not of the expected type; the message starts with the key's path."""


def decode(kind: type[T], value: object, path: str = "") -> T:
    """The dataclass `kind` read from a JSON object: every key known, none but sparse ones missing.

    Raises:
        ShapeError: A key is missing, unknown, or of another type.
    """
    return cast(T, _dataclass(kind, value, path))


def encode(value: object) -> Json:
    """The JSON value of a dataclass, a mapping, a sequence or a plain value."""
    if is_dataclass(value) and not isinstance(value, type):
        found = {spec: getattr(value, spec.name) for spec in fields(value)}
        kept = {spec: item for spec, item in found.items() if item or not spec.metadata.get(SPARSE)}
        return {spec.name: encode(item) for spec, item in kept.items()}
    if isinstance(value, Mapping):
        items = cast("Mapping[str, object]", value)
        return {key: encode(item) for key, item in items.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in cast("Sequence[object]", value)]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{type(value).__name__} has no JSON form")


@cache
def _hints(kind: type) -> dict[str, object]:
    return get_type_hints(kind)


@cache
def _sparse(kind: type) -> frozenset[str]:
    return frozenset(spec.name for spec in fields(kind) if spec.metadata.get(SPARSE))


def _dataclass(kind: type, value: object, path: str) -> object:
    if not isinstance(value, dict):
        raise ShapeError(f"'{path}' is not an object")
    items = cast("dict[str, object]", value)
    hints = _hints(kind)
    for key in items:
        if key not in hints:
            raise ShapeError(f"'{_join(path, key)}' is unknown")
    for key in hints.keys() - items.keys() - _sparse(kind):
        raise ShapeError(f"'{_join(path, key)}' is missing")
    found = {key: hint for key, hint in hints.items() if key in items}
    return kind(**{key: _value(hint, items[key], _join(path, key)) for key, hint in found.items()})


def _value(hint: object, value: object, path: str) -> object:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (types.UnionType, Union):
        return _one_of(args, value, path)
    if origin is tuple:
        return _sequence(args[0], value, path)
    if origin is Mapping or origin is dict:
        return _mapping(args[1], value, path)
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(args[1], value, path)
    if isinstance(hint, type) and is_dataclass(hint):
        return _dataclass(hint, value, path)
    return _plain(cast(type, hint), value, path)


def _one_of(hints: tuple[object, ...], value: object, path: str) -> object:
    for hint in hints:
        try:
            return _value(hint, value, path)
        except ShapeError:
            continue
    raise ShapeError(f"'{path}' has the wrong type")


def _sequence(hint: object, value: object, path: str) -> object:
    if not isinstance(value, list):
        raise ShapeError(f"'{path}' is not a list")
    items = cast("list[object]", value)
    return tuple(_value(hint, item, f"{path}[{index}]") for index, item in enumerate(items))


def _mapping(hint: object, value: object, path: str) -> object:
    if not isinstance(value, dict):
        raise ShapeError(f"'{path}' is not an object")
    items = cast("dict[str, object]", value)
    return {key: _value(hint, item, _join(path, key)) for key, item in items.items()}


def _plain(kind: type, value: object, path: str) -> object:
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ShapeError(f"'{path}' is not of type {kind.__name__}")
    return value


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
