"""The equations of `Einsum`: a letter an axis, digits for the axes of an ellipsis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_EXTRA: Final = "0123456789"


@dataclass(frozen=True)
class Equation:
    """An equation, every axis with a name.

    Attributes:
        terms: The names of each operand's axes.
        output: Those of the result.
    """

    terms: tuple[str, ...]
    output: str


def read_equation(text: str, ranks: Sequence[int]) -> Equation | None:
    """The equation of a text for operands of these ranks; None where they do not fit.

    Axes of an ellipsis are counted from the last one; without an output the letters that stand once
    are kept, in the order of the alphabet, behind the ellipsis.
    """
    left, arrow, right = text.replace(" ", "").partition("->")
    given = left.split(",")
    if len(given) != len(ranks):
        return None
    terms = [_term(term, rank) for term, rank in zip(given, ranks, strict=True)]
    known = [term for term in terms if term is not None]
    if len(known) != len(terms):
        return None
    letters = "".join(known)
    extra = "".join(sorted({c for c in letters if c in _EXTRA}))
    if arrow:
        output = right.replace("...", extra)
    else:
        output = extra + "".join(
            sorted(c for c in set(letters) - set(extra) if letters.count(c) == 1)
        )
    fits = set(output) <= set(letters) and len(set(output)) == len(output)
    return Equation(tuple(known), output) if fits else None


def _term(term: str, rank: int) -> str | None:
    """The names of an operand's axes."""
    count = rank - len(term.replace("...", ""))
    if count < 0 or count > len(_EXTRA) or ("..." not in term and count):
        return None
    return term.replace("...", _EXTRA[len(_EXTRA) - count :])
