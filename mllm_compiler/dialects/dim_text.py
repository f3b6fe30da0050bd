"""Reads the spelling of a dimension expression."""

from __future__ import annotations

import re
from typing import Final

from mllm_compiler.dialects.dim_expressions import UNKNOWN, Dim, combine

DEEPEST: Final = 64
"""Brackets of an expression that is read."""


def read_dim(text: str) -> Dim:
    """The dim of a text, as `str` of a dim writes it.

    Raises:
        ValueError: `text` is no dimension expression.
    """
    return _Reader(text).whole()


class _Reader:
    """Recursive descent over the spelling of `Dim.text`."""

    TOKEN = re.compile(r"\s*(\d+|[A-Za-z_][\w.:/\-]*|\?|[-+*(),])")

    def __init__(self, text: str) -> None:
        self.text, self.tokens, at = text, [], 0
        while at < len(text.rstrip()):
            found = self.TOKEN.match(text, at)
            if found is None:
                raise ValueError(f"'{text}' is no dimension expression")
            self.tokens.append(found[1])
            at = found.end()
        if self.tokens.count("(") > DEEPEST:
            raise ValueError("a dimension expression that deep is not read")
        self.next = 0

    tokens: list[str]

    def whole(self) -> Dim:
        if self.tokens == ["?"]:
            return UNKNOWN
        value = self.sum()
        if self.next != len(self.tokens):
            raise ValueError(f"'{self.text}' is no dimension expression")
        return value

    def peek(self) -> str:
        return self.tokens[self.next] if self.next < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.next += 1
        return token

    def expect(self, token: str) -> None:
        if self.take() != token:
            raise ValueError(f"'{self.text}' is no dimension expression: '{token}' expected")

    def sum(self) -> Dim:
        total = -self.product() if self.peek() == "-" and self.take() else self.product()
        while self.peek() in ("+", "-"):
            sign = self.take()
            term = self.product()
            total = total + term if sign == "+" else total - term
        return total

    def product(self) -> Dim:
        value = self.factor()
        while self.peek() in ("*", "floordiv", "mod"):
            op = self.take()
            rhs = self.factor()
            value = value * rhs if op == "*" else combine(op, value, rhs)
        return value

    def factor(self) -> Dim:
        token = self.take()
        if token == "(":
            value = self.sum()
            self.expect(")")
            return value
        if token in ("min", "max") and self.peek() == "(":
            self.expect("(")
            lhs = self.sum()
            self.expect(",")
            rhs = self.sum()
            self.expect(")")
            return combine(token, lhs, rhs)
        if token.isdigit():
            return Dim.const(int(token))
        if not token or token in "-+*(),":
            raise ValueError(f"'{self.text}' is no dimension expression")
        return Dim.symbol(token)
