"""A recipe as the TOML that reads back to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any

from mllm_compiler.quantisation.recipe import WHOLE, Recipe, Rule


def keeping(recipe: Recipe, names: Sequence[str]) -> Recipe:
    """The recipe with a first rule that keeps some products as the model has them.

    Args:
        recipe: What it says of all others stays.
        names: `graph:weight` or `graph:node`, each as it is: no pattern.
    """
    if not names:
        return recipe
    kept = Rule(names=tuple(_literal(name) for name in names), bits=WHOLE)
    return replace(recipe, rules=(kept, *recipe.rules))


def recipe_text(recipe: Recipe) -> str:
    """The text; keys that have their default are left out."""
    lines, tables = list[str](), list[str]()
    for key, value in _values(recipe):
        if is_dataclass(value):
            tables += ["", f"[{key}]", *_keys(value)]
        elif key == "rules":
            for rule in recipe.rules:
                tables += ["", "[[rules]]", *_keys(rule)]
        else:
            lines.append(f"{key} = {json.dumps(value)}")
    return "\n".join([*lines, *tables]) + "\n"


def _literal(name: str) -> str:
    """A name whose signs mean nothing in a pattern."""
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in name)


def _keys(part: object) -> list[str]:
    """The lines of a table."""
    return [f"{key} = {json.dumps(value)}" for key, value in _values(part)]


def _values(part: Any) -> Iterator[tuple[str, object]]:
    """Each key that a table may have and whose value is not its default."""
    for field in fields(part):
        default = None if field.default is MISSING else field.default
        if field.default_factory is not MISSING:
            default = field.default_factory()
        value = getattr(part, field.name)
        if field.metadata.get("key") != "" and value != default:
            yield field.name, value
