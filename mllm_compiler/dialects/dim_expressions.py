"""Expressions of dimensions: integer polynomials over named symbols, in one canonical spelling."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod
from typing import Final

Monomial = tuple["Atom", ...]

MOST_TERMS, MOST_FACTORS, MOST = 256, 32, (1 << 63) - 1
"""The terms, the factors of one and the coefficient of an expression; a larger one is unknown."""

MOST_TEXT = 4096
"""The characters of what is divided or compared in one; minima of maxima of .. double."""


@dataclass(frozen=True)
class Atom:
    """An indivisible factor: a symbol (`op` empty), or the floor quotient or remainder of two dims.

    `min` and `max` are atoms too, since they are no polynomials.
    """

    name: str = ""
    op: str = ""
    lhs: Dim | None = None
    rhs: Dim | None = None

    def __str__(self) -> str:
        """A name, a bracketed infix operation, or a call."""
        if not self.op:
            return self.name
        if self.op in ("min", "max"):
            return f"{self.op}({self.lhs}, {self.rhs})"
        return f"(({self.lhs}) {self.op} ({self.rhs}))"

    def evaluate(self, env: Mapping[str, int]) -> int:
        """The value under `env`.

        Raises:
            KeyError: A symbol has no value.
            ZeroDivisionError: The divisor is zero.
        """
        if not self.op:
            return env[self.name]
        assert self.lhs is not None
        assert self.rhs is not None
        return _apply(self.op, self.lhs.evaluate(env), self.rhs.evaluate(env))

    def substitute(self, values: Mapping[str, Dim]) -> Dim:
        """This atom with symbols replaced by dims."""
        if not self.op:
            return values.get(self.name, Dim.symbol(self.name))
        assert self.lhs is not None
        assert self.rhs is not None
        return combine(self.op, self.lhs.substitute(values), self.rhs.substitute(values))

    def symbols(self) -> frozenset[str]:
        """The names that occur in it."""
        if not self.op:
            return frozenset((self.name,))
        assert self.lhs is not None
        assert self.rhs is not None
        return self.lhs.symbols() | self.rhs.symbols()


def _apply(op: str, a: int, b: int) -> int:
    match op:
        case "floordiv":
            return a // b
        case "mod":
            return a % b
        case "min":
            return min(a, b)
        case _:
            return max(a, b)


@dataclass(frozen=True)
class Dim:
    """A sum of monomials with integer coefficients, in canonical order; hashable, comparable."""

    terms: tuple[tuple[Monomial, int], ...] = ()
    unknown: bool = False

    @staticmethod
    def const(value: int) -> Dim:
        """The constant `value`."""
        return Dim((((), value),)) if value else Dim()

    @staticmethod
    def symbol(name: str) -> Dim:
        """The symbol `name`."""
        return Dim((((Atom(name),), 1),))

    @staticmethod
    def of(value: Dim | int) -> Dim:
        """`value` as a dim."""
        return value if isinstance(value, Dim) else Dim.const(value)

    @staticmethod
    def parse(text: str) -> Dim:
        """Reads what `str` writes.

        Raises:
            ValueError: `text` is no dimension expression.
        """
        from mllm_compiler.dialects.dim_text import read_dim

        return read_dim(text)

    @staticmethod
    def _from(terms: Iterable[tuple[Monomial, int]]) -> Dim:
        total: dict[Monomial, int] = {}
        for monomial, coefficient in terms:
            total[monomial] = total.get(monomial, 0) + coefficient
        kept = [(m, c) for m, c in total.items() if c]
        if len(kept) > MOST_TERMS or any(len(m) > MOST_FACTORS or abs(c) > MOST for m, c in kept):
            return UNKNOWN
        return Dim(tuple(sorted(kept, key=lambda t: (-len(t[0]), [str(a) for a in t[0]]))))

    @cached_property
    def text(self) -> str:
        """The canonical spelling."""
        if self.unknown:
            return "?"
        if not self.terms:
            return "0"
        parts: list[str] = []
        for monomial, coefficient in self.terms:
            factors = [str(a) for a in monomial]
            if abs(coefficient) != 1 or not factors:
                factors.insert(0, str(abs(coefficient)))
            sign = "-" if coefficient < 0 else "+"
            parts.append(f"{sign} {' * '.join(factors)}")
        text = " ".join(parts)
        return text.removeprefix("+ ") if text[0] == "+" else "-" + text[2:]

    def __str__(self) -> str:
        """The canonical spelling."""
        return self.text

    def as_int(self) -> int | None:
        """The value of a constant, else None."""
        if self.unknown:
            return None
        if not self.terms:
            return 0
        if len(self.terms) == 1 and not self.terms[0][0]:
            return self.terms[0][1]
        return None

    def as_symbol(self) -> str | None:
        """The name, when this is one bare symbol."""
        if len(self.terms) != 1 or self.terms[0][1] != 1 or len(self.terms[0][0]) != 1:
            return None
        return self.terms[0][0][0].name or None

    def symbols(self) -> frozenset[str]:
        """The names that occur in it."""
        return frozenset(s for m, _ in self.terms for a in m for s in a.symbols())

    def evaluate(self, env: Mapping[str, int]) -> int:
        """The value under `env`.

        Raises:
            KeyError: A symbol has no value, or the dimension is unknown (`?`).
        """
        if self.unknown:
            raise KeyError("?")
        return sum(c * prod(a.evaluate(env) for a in m) for m, c in self.terms)

    def substitute(self, values: Mapping[str, Dim]) -> Dim:
        """This dim with symbols replaced by dims."""
        if self.unknown or not self.symbols() & values.keys():
            return self
        total = Dim()
        for monomial, coefficient in self.terms:
            term = Dim.const(coefficient)
            for atom in monomial:
                term = term * atom.substitute(values)
            total = total + term
        return total

    def upper(self, bounds: Mapping[str, int]) -> int:
        """The largest value, each symbol between 0 and its bound; exact where it grows with each.

        Raises:
            KeyError: A symbol has no bound, or the dimension is unknown (`?`).
        """
        if self.unknown:
            raise KeyError("?")
        return sum(c * prod(a.evaluate(bounds) for a in m) for m, c in self.terms if c > 0 or not m)

    def __add__(self, other: Dim | int) -> Dim:
        """Sum."""
        other = Dim.of(other)
        if self.unknown or other.unknown:
            return UNKNOWN
        return Dim._from((*self.terms, *other.terms))

    def __neg__(self) -> Dim:
        """Negation."""
        return UNKNOWN if self.unknown else Dim(tuple((m, -c) for m, c in self.terms))

    def __sub__(self, other: Dim | int) -> Dim:
        """Difference."""
        return self + -Dim.of(other)

    def __mul__(self, other: Dim | int) -> Dim:
        """Product."""
        other = Dim.of(other)
        if self.unknown or other.unknown or len(self.terms) * len(other.terms) > 4 * MOST_TERMS:
            return UNKNOWN
        return Dim._from(
            (tuple(sorted((*m, *n), key=str)), c * d) for m, c in self.terms for n, d in other.terms
        )

    def __floordiv__(self, other: Dim | int) -> Dim:
        """Floor quotient; exact quotients of polynomials are found."""
        return combine("floordiv", self, Dim.of(other))

    def __mod__(self, other: Dim | int) -> Dim:
        """Remainder with the sign of the divisor."""
        return combine("mod", self, Dim.of(other))


UNKNOWN: Final = Dim(unknown=True)
"""A dimension that only data decide."""


def combine(op: str, lhs: Dim, rhs: Dim) -> Dim:
    """`lhs op rhs` for `floordiv`, `mod`, `min` and `max`, simplified where that is certain.

    Raises:
        ZeroDivisionError: The divisor is the constant zero.
    """
    if lhs.unknown or rhs.unknown or len(lhs.text) + len(rhs.text) > MOST_TEXT:
        return UNKNOWN
    a, b = lhs.as_int(), rhs.as_int()
    if a is not None and b is not None:
        return Dim.const(_apply(op, a, b))
    if op in ("min", "max"):
        return lhs if lhs == rhs else Dim((((Atom(op=op, lhs=lhs, rhs=rhs),), 1),))
    quotient = _exact_quotient(lhs, rhs)
    if quotient is not None:
        return quotient if op == "floordiv" else Dim()
    return Dim((((Atom(op=op, lhs=lhs, rhs=rhs),), 1),))


def _exact_quotient(lhs: Dim, rhs: Dim) -> Dim | None:
    """`lhs / rhs` where `rhs` is one monomial that divides each term, or `lhs` is a multiple."""
    if lhs == rhs:
        return Dim.const(1)
    if len(rhs.terms) != 1:
        return _constant_multiple(lhs, rhs)
    divisor, coefficient = rhs.terms[0]
    terms: list[tuple[Monomial, int]] = []
    for monomial, c in lhs.terms:
        rest = list(monomial)
        for atom in divisor:
            if atom not in rest:
                return None
            rest.remove(atom)
        if c % coefficient:
            return None
        terms.append((tuple(rest), c // coefficient))
    return Dim._from(terms)  # pyright: ignore[reportPrivateUsage]


def _constant_multiple(lhs: Dim, rhs: Dim) -> Dim | None:
    if not rhs.terms or not lhs.terms or len(lhs.terms) != len(rhs.terms):
        return None
    content = gcd(*(c for _, c in rhs.terms))
    factor, remainder = divmod(lhs.terms[0][1], rhs.terms[0][1])
    if remainder or content == 0 or rhs * factor != lhs:
        return None
    return Dim.const(factor)
