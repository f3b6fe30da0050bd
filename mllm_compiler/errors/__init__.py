"""Errors that a user can act on: one located line, a code, a remedy.

A code is `MLC-`, the letter of its area and three digits. The area's module lists its codes with
cause, example and remedy; `docs/errors.md` is generated from those tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module

AREAS = {
    "I": "importer",
    "D": "dialect",
    "P": "passes",
    "Q": "quantisation",
    "R": "placement",
    "V": "vendor",
    "B": "bundle",
    "X": "runtime",
    "U": "usage",
}
"""The area letters of error codes and the module of this package that lists their codes."""

LONGEST = 600
"""Characters of a part of an error's line."""

OWN_FAULT = "MLC-F000"
"""The code of a failure of ours: no user's input should reach it."""


@dataclass(frozen=True, kw_only=True)
class ErrorCode:
    """What `docs/errors.md` says of one code.

    Attributes:
        title: The fault in a few words.
        exit: The exit status of the command: 1 input, 2 usage, 3 gate or placement, 4 vendor.
        cause: Why it happens.
        example: A line as a user sees it.
        remedy: What to do.
    """

    title: str
    exit: int
    cause: str
    example: str
    remedy: str


class CompileError(Exception):
    """A fault that is told in one line: `location: error: message [code] (remedy)`.

    Args:
        code: A code that its area's table lists, for example `MLC-I003`.
        message: The fault, without location; one line.
        location: Where: a file, a file and a key, or the name of an ONNX node.
        remedy: What the user can do, as a clause.
    """

    def __init__(self, code: str, message: str, *, location: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = " ".join(message.split())
        self.location = location
        self.remedy = remedy

    def __str__(self) -> str:
        """The whole line; a name with control characters moves neither line nor cursor."""
        where = f"{_shortened(self.location)}: " if self.location else ""
        remedy = f" ({_shortened(self.remedy)})" if self.remedy else ""
        line = f"{where}error: {_shortened(self.message)} [{self.code}]{remedy}"
        return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)

    @property
    def exit_code(self) -> int:
        """The exit status that the command line answers with."""
        known = error_codes().get(self.code)
        return known.exit if known else 70


def _shortened(text: str) -> str:
    """A text without its middle, where a name of the model makes it too long to be read."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 4 :]}"


@cache
def error_codes() -> dict[str, ErrorCode]:
    """Every code that the compiler raises, in the order of the areas."""
    codes: dict[str, ErrorCode] = {}
    for area in AREAS.values():
        codes.update(import_module(f"{__name__}.{area}").CODES)
    return codes
