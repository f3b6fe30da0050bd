"""What is expected of a case: it passes, unless `known.toml` says what it does instead."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.conformance.cases import cases, in_fast_tests
from tests.conformance.runners import PASSED, Outcome

KNOWN = Path(__file__).with_name("known.toml")
PASSING = Path(__file__).with_name("passing.txt")


@cache
def known(level: str) -> dict[str, str]:
    """The reasons of the cases that are known to fail at a level."""
    return tomllib.loads(KNOWN.read_text(encoding="utf-8")).get(level, {})


@cache
def passing(level: str) -> frozenset[str]:
    """The cases that passed at a level when the figures were last written."""
    lines = [line.split() for line in PASSING.read_text(encoding="utf-8").splitlines()]
    return frozenset(words[0] for words in lines if level in words[1:])


def parameters() -> list[object]:
    """Every case; those that are not of the share of `make test` are marked slow."""
    return [
        pytest.param(name, id=name, marks=() if in_fast_tests(name) else pytest.mark.slow)
        for name in cases()
    ]


def check(level: str, name: str, outcome: Outcome, allowed: Sequence[str] = ()) -> None:
    """Holds an outcome against what is expected.

    Args:
        level: `numpy`, `mllm` or `c`.
        name: The case.
        outcome: What became of it.
        allowed: What it may do instead of passing, if it did not pass before.
    """
    reason = known(level).get(name)
    said = f"{level}: {outcome.status}: {outcome.why}"
    if reason is not None:
        assert outcome.status != PASSED, f"it passes: take it out of {KNOWN.name} ({reason})"
        return
    if name in passing(level):
        assert outcome.status == PASSED, said
    assert outcome.status in (PASSED, *allowed), said
