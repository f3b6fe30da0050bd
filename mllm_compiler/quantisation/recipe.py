"""Recipes: which format each product of a model takes, and how its codes are chosen.

A recipe is a TOML file. `[linears]` says what products with a weight take, `[head]` the one that
gives the logits, `[embeddings]` the tables that tokens are looked up in; each `[[rules]]` goes
before them for the products that it names, the first that fits. Built-in ones lie in `recipes/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from mllm_compiler.errors import CompileError
from mllm_compiler.importer.typed_tables import load_toml, typed, wrong
from mllm_compiler.quantisation.grid import Grid

FOLDER: Final = Path(__file__).resolve().parent / "recipes"

FLOAT, DYNAMIC, STATIC = ACTIVATIONS = ("float", "dynamic", "static")
"""Activations stay real, are quantised token by token, or with scales from calibration data."""

HALF, WHOLE = 16, 32
"""Bits of weights that are no codes: f16, and as the model has them."""

BITS: Final = (2, 4, 8, HALF, WHOLE)

NEAREST, CLIPPED = METHODS = ("nearest", "clipped")
"""How codes are chosen: the nearest over the whole range, or over the range of least error."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """How a product is quantised.

    Attributes:
        bits: Of a weight's codes; 16 keeps it as f16, 32 as it is.
        block_size: Inputs that share a scale; without one, an output channel has one scale.
        symmetric: Whether codes are signed and zero is code 0.
        activations: `float`, `dynamic` (a scale for each token, and, with blocks, for each block
            of it) or `static` (one scale, from calibration data).
        method: How codes are chosen.
    """

    bits: int = WHOLE
    block_size: int | None = None
    symmetric: bool = True
    activations: str = FLOAT
    method: str = NEAREST

    def grid(self, inputs: int) -> Grid | None:
        """The grid of a weight of so many inputs; None where it has no codes."""
        if self.bits >= HALF:
            return None
        blocks = self.block_size if (self.block_size or inputs) < inputs else None
        return Grid(bits=self.bits, block_size=blocks, symmetric=self.symmetric)

    def fault(self) -> tuple[str, str, str] | None:
        """A key that cannot be used, why, and what to write instead."""
        for key, known in (("bits", BITS), ("activations", ACTIVATIONS), ("method", METHODS)):
            given = getattr(self, key)
            if given not in known:
                near = get_close_matches(str(given), [str(k) for k in known], n=1)
                listed = f"write one of {', '.join(map(str, known))}"
                return key, f"unknown {given!r}", f"did you mean '{near[0]}'?" if near else listed
        if self.block_size is not None and self.block_size < 1:
            return "block_size", "a block has at least 1 input", "write 32, 64 or 128"
        if self.bits >= HALF and self.activations != FLOAT:
            return "activations", f"weights of {self.bits} bits take float ones", "write float"
        return None


@dataclass(frozen=True, kw_only=True)
class Rule(Format):
    """A format for the products that it names.

    Attributes:
        names: Patterns (`*`, `?`) of `graph:weight` or `graph:node`.
        roles: Roles of graphs, such as `projector`; without any, graphs of every role.
    """

    names: tuple[str, ...] = ("*",)
    roles: tuple[str, ...] = ()

    def names_one(self, names: Sequence[str], role: str) -> bool:
        """Whether the rule is for a product of these names in a graph of this role."""
        here = not self.roles or role in self.roles
        return here and any(fnmatchcase(n, p) for n in names for p in self.names)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a recipe says.

    Attributes:
        description: For whom it is, in a line.
        linears: The format of products with a weight.
        head: That of the product that gives `logits`; without one, as the others.
        embeddings: That of tables; without one, they stay.
        rules: What goes before these for some products.
    """

    description: str = ""
    linears: Format
    head: Format | None = None
    embeddings: Format | None = None
    rules: tuple[Rule, ...] = ()
    name: str = field(default="", metadata={"key": ""})

    def format_of(self, names: Sequence[str], role: str, *, head: bool = False) -> Format:
        """The format of a product by its names and the role of its graph."""
        for rule in self.rules:
            if rule.names_one(names, role):
                return rule
        return self.head if head and self.head is not None else self.linears

    @property
    def needs_data(self) -> bool:
        """Whether it chooses anything by what activations are like."""
        return any(f.activations == STATIC for f in self.formats())

    def formats(self) -> list[Format]:
        """Every format that it names."""
        given = (self.linears, self.head, self.embeddings, *self.rules)
        return [f for f in given if f is not None]


def recipe_names() -> list[str]:
    """The built-in recipes."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def read_recipe(word: str) -> Recipe:
    """The recipe of a built-in name, or of a `.toml` file.

    Raises:
        CompileError: `MLC-Q001`, there is no such recipe; it cannot be read, or a key of it cannot
            be used.
    """
    path = Path(word)
    if path.suffix != ".toml":
        path = FOLDER / f"{word}.toml"
    if not path.is_file():
        raise _unknown(word)
    recipe = typed(Recipe, load_toml(path), file=path.name)
    object.__setattr__(recipe, "name", path.stem)
    parts = {"linears": recipe.linears, "head": recipe.head, "embeddings": recipe.embeddings}
    parts |= {f"rules[{at}]": rule for at, rule in enumerate(recipe.rules)}
    for at, part in parts.items():
        if part is not None and (fault := part.fault()) is not None:
            key, message, remedy = fault
            raise wrong(path.name, f"{at}.{key}", message, remedy)
    return recipe


def _unknown(word: str) -> CompileError:
    names = recipe_names()
    near = get_close_matches(Path(word).stem, names, n=1)
    remedy = f"did you mean {near[0]}?" if near else f"recipes: {', '.join(names)}, or a .toml file"
    message = "no recipe of this name" if Path(word).suffix != ".toml" else "no such recipe"
    return CompileError("MLC-Q001", message, location=word, remedy=remedy)
