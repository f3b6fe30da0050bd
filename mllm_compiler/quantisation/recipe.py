"""Recipes: which format each product of a model takes, and how its codes are chosen.

A recipe is a TOML file. `[linears]` says what products with a weight take, `[head]` the one that
gives the logits, `[embeddings]` the tables that tokens are looked up in; each `[[rules]]` goes
before them for the products that it names, the first that fits. Built-in ones lie in `recipes/`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
CACHE_BITS: Final = (4, 8, HALF)
VALUE_BITS: Final = (8, 16)

NEAREST, CLIPPED, GPTQ = METHODS = ("nearest", "clipped", "gptq")
"""How codes are chosen: the nearest over the whole range, or over the range of least error, or
those that harm the outputs on calibration data least."""

MINMAX, PERCENTILE, MSE = RANGES = ("minmax", "percentile", "mse")
"""How far the codes of values reach: over all that samples show, or all but 1 in 10,000 at each
end, or so that their squared error is least."""

SMOOTHQUANT, AWQ = SMOOTHINGS = ("smoothquant", "awq")
"""What scales the channels of activations before: their magnitudes, or a search for the factors."""


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
        damping: What gptq adds to the second moments of inputs, as a part of their mean: the
            fewer rows it sees, the more.
        sweeps: How often gptq goes over its codes and scales once more.
        correct_bias: Whether a bias takes back the mean error on calibration data.
    """

    bits: int = WHOLE
    block_size: int | None = None
    symmetric: bool = True
    activations: str = FLOAT
    method: str = NEAREST
    damping: float = 0.01
    sweeps: int = 0
    correct_bias: bool = False

    @property
    def needs_data(self) -> bool:
        """Whether anything is chosen by what activations are like."""
        coded = self.method == GPTQ or self.correct_bias
        return self.activations == STATIC or (coded and self.bits < HALF)

    def grid(self, inputs: int) -> Grid | None:
        """The grid of a weight of so many inputs; None where it has no codes."""
        if self.bits >= HALF:
            return None
        blocks = self.block_size if (self.block_size or inputs) < inputs else None
        return Grid(bits=self.bits, block_size=blocks, symmetric=self.symmetric)

    def fault(self) -> tuple[str, str, str] | None:
        """A key that cannot be used, why, and what to write instead."""
        for key, known in (("bits", BITS), ("activations", ACTIVATIONS), ("method", METHODS)):
            if (fault := _unknown_word(key, getattr(self, key), known)) is not None:
                return fault
        if self.block_size is not None and self.block_size < 1:
            return "block_size", "a block has at least 1 input", "write 32, 64 or 128"
        if not 0 < self.damping < math.inf:
            return "damping", f"{self.damping} is no part of a mean", "write 0.01 or more"
        if self.sweeps < 0:
            return "sweeps", f"{self.sweeps} is no number of rounds", "write 0 or more"
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
class Limits:
    """How much of calibration data is taken.

    Attributes:
        tokens: Of texts, in windows that lie evenly over all of them.
        window: Tokens of a window.
        files: Pictures, sounds or `.npz` files.
    """

    tokens: int = 4096
    window: int = 512
    files: int = 32


@dataclass(frozen=True, kw_only=True)
class Mixed:
    """More bits for the products of `[linears]` whose codes move the results most.

    Attributes:
        average: The bits of a weight on average, scales and zero points counted, the head not.
        bits: What those products take.
    """

    average: float
    bits: int = 8


@dataclass(frozen=True, kw_only=True)
class Cache:
    """How what attention reads of a cache is stored.

    Attributes:
        bits: 16 for f16, 8 for codes, or 4 for all but the youngest tokens and the first ones.
    """

    bits: int

    @property
    def needs_data(self) -> bool:
        """Whether scales of keys are chosen by what keys are like."""
        return self.bits < HALF


@dataclass(frozen=True, kw_only=True)
class Values:
    """Codes for every value between ops, with one scale each from calibration data.

    Attributes:
        bits: 8 or 16.
        method: How far the codes of a value reach: `minmax`, `percentile` or `mse`.
        real_norms: Whether what is within a norm stays real.
    """

    bits: int
    method: str = MINMAX
    real_norms: bool = False

    def fault(self) -> tuple[str, str, str] | None:
        """A key that cannot be used, why, and what to write instead."""
        if self.bits not in VALUE_BITS:
            return "bits", f"values do not take {self.bits} bits", "write 8 or 16"
        return _unknown_word("method", self.method, RANGES)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a recipe says.

    Attributes:
        description: For whom it is, in a line.
        linears: The format of products with a weight.
        head: That of the product that gives `logits`; without one, as the others.
        embeddings: That of tables; without one, they stay.
        rules: What goes before these for some products.
        rotate: Whether the residual streams of decoders are turned before.
        smooth: What scales the channels of activations before; nothing where it is absent.
        strength: How much of the difficulty `smoothquant` moves into weights, 0 to 1.
        mixed: Which products may take more bits than the rest.
        cache: The codes of keys and values; without it, they stay real.
        values: The codes of all values between ops; without it, they stay real.
        calibration: How much of the data is taken.
        name: The stem of its file.
        text: What the file says.
    """

    description: str = ""
    linears: Format
    head: Format | None = None
    embeddings: Format | None = None
    rules: tuple[Rule, ...] = ()
    rotate: bool = False
    smooth: str | None = None
    strength: float = 0.5
    mixed: Mixed | None = None
    cache: Cache | None = None
    values: Values | None = None
    calibration: Limits = field(default_factory=Limits)
    name: str = field(default="", compare=False, metadata={"key": ""})
    text: str = field(default="", compare=False, metadata={"key": ""})

    def format_of(self, names: Sequence[str], role: str, *, head: bool = False) -> Format:
        """The format of a product by its names and the role of its graph."""
        for rule in self.rules:
            if rule.names_one(names, role):
                return rule
        return self.head if head and self.head is not None else self.linears

    @property
    def needs_data(self) -> bool:
        """Whether it chooses anything by what activations are like."""
        cached = self.cache is not None and self.cache.needs_data
        given = any(part is not None for part in (self.mixed, self.smooth, self.values))
        return cached or given or any(f.needs_data for f in self.formats())

    def formats(self) -> list[Format]:
        """Every format that it names."""
        given = (self.linears, self.head, self.embeddings, *self.rules)
        return [f for f in given if f is not None]


def _unknown_word(key: str, given: object, known: Sequence[object]) -> tuple[str, str, str] | None:
    """A key whose value is none of those known."""
    if given in known:
        return None
    near = get_close_matches(str(given), [str(k) for k in known], n=1)
    listed = f"write one of {', '.join(map(str, known))}"
    return key, f"unknown {given!r}", f"did you mean '{near[0]}'?" if near else listed


def recipe_names() -> list[str]:
    """The built-in recipes."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def read_recipe(word: str) -> Recipe:
    """The recipe of a built-in name, or of a `.toml` file; `A+B` is A with the cache of B.

    Raises:
        CompileError: `MLC-Q001`, there is no such recipe, or none to add; it cannot be read, or a
            key of it cannot be used.
    """
    first, plus, second = word.partition("+")
    if not plus or Path(word).is_file():
        return _read(word)
    recipe, other = _read(first), _read(second)
    if recipe.cache is not None or other.cache is None:
        message = f"{recipe.name} has a [cache]" if recipe.cache else f"{other.name} has no [cache]"
        raise CompileError(
            "MLC-Q001", message, location=word, remedy="add +kv16, +kv8 or +kv4 to one"
        )
    text = f"{recipe.text}\n[cache]\nbits = {other.cache.bits}\n"
    return replace(recipe, cache=other.cache, name=f"{recipe.name}+{other.name}", text=text)


def _read(word: str) -> Recipe:
    path = Path(word)
    if path.suffix != ".toml":
        path = FOLDER / f"{word}.toml"
    if not path.is_file():
        raise _unknown(word)
    recipe = typed(Recipe, load_toml(path), file=path.name)
    for key, value in (("name", path.stem), ("text", path.read_text("utf-8"))):
        object.__setattr__(recipe, key, value)
    parts: dict[str, Format | Values | None] = {
        "linears": recipe.linears,
        "head": recipe.head,
        "embeddings": recipe.embeddings,
        "values": recipe.values,
    }
    parts |= {f"rules[{at}]": rule for at, rule in enumerate(recipe.rules)}
    for at, part in parts.items():
        if part is not None and (fault := part.fault()) is not None:
            key, message, remedy = fault
            raise wrong(path.name, f"{at}.{key}", message, remedy)
    if recipe.values is not None and any(f.activations != FLOAT for f in recipe.formats()):
        message = "what products read has codes already, as [linears] says"
        raise wrong(path.name, "values", message, 'give products activations = "float"')
    for key, value in vars(recipe.calibration).items():
        if value < 1:
            raise wrong(path.name, f"calibration.{key}", f"{value} is too few", "write 1 or more")
    if recipe.smooth is not None and recipe.smooth not in SMOOTHINGS:
        near = get_close_matches(recipe.smooth, SMOOTHINGS, n=1, cutoff=0.0)[0]
        raise wrong(path.name, "smooth", f"unknown {recipe.smooth!r}", f"did you mean '{near}'?")
    if not 0 <= recipe.strength <= 1:
        message = f"{recipe.strength} is no part"
        raise wrong(path.name, "strength", message, "write a number from 0 to 1")
    if recipe.mixed is not None and recipe.mixed.bits not in (4, 8):
        message = f"products do not take {recipe.mixed.bits} bits"
        raise wrong(path.name, "mixed.bits", message, "write 4 or 8")
    if recipe.mixed is not None and recipe.mixed.bits <= recipe.linears.bits:
        message = f"no more than the {recipe.linears.bits} of linears"
        raise wrong(path.name, "mixed.bits", message, "give linears fewer bits")
    if recipe.cache is not None and recipe.cache.bits not in CACHE_BITS:
        message = f"a cache does not take {recipe.cache.bits} bits"
        raise wrong(path.name, "cache.bits", message, "write 4, 8 or 16")
    if recipe.embeddings is not None and recipe.embeddings.needs_data:
        message = "a look-up has no activations"
        raise wrong(path.name, "embeddings.method", message, "write nearest or clipped")
    return recipe


def _unknown(word: str) -> CompileError:
    names = recipe_names()
    near = get_close_matches(Path(word).stem, names, n=1)
    remedy = f"did you mean {near[0]}?" if near else f"recipes: {', '.join(names)}, or a .toml file"
    message = "no recipe of this name" if Path(word).suffix != ".toml" else "no such recipe"
    return CompileError("MLC-Q001", message, location=word, remedy=remedy)
