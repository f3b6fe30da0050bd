"""A recipe as the TOML that reads back to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields, replace

from mllm_compiler.quantisation.recipe import WHOLE, Format, Recipe, Rule


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
    lines = [f"description = {json.dumps(recipe.description)}"]
    parts = {"linears": recipe.linears, "head": recipe.head, "embeddings": recipe.embeddings}
    for name, part in parts.items():
        if part is not None:
            lines += ["", f"[{name}]", *_keys(part)]
    for rule in recipe.rules:
        lines += ["", "[[rules]]", *_keys(rule)]
    return "\n".join(lines) + "\n"


def _literal(name: str) -> str:
    """A name whose signs mean nothing in a pattern."""
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in name)


def _keys(part: Format) -> Iterator[str]:
    for field in fields(part):
        value = getattr(part, field.name)
        default = field.default if field.default is not MISSING else None
        if value == default:
            continue
        yield f"{field.name} = {json.dumps(value)}"
