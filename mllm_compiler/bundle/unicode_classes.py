"""Classes of code points as the tokenizers library sees them, for tokenizer tables.

`unicode_classes.json` holds them as data, not as a question to Python's `unicodedata`: the same
tokenizer must give the same bytes on every Python. A test compares it with the library on every
code point.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Final, cast

CLASSES: Final = {"letter": 1, "number": 2, "space": 4, "digit": 8}
r"""Bits: `\p{L}`, `\p{N}`, `\s` of its regular expressions, and what its `Digits` cuts at."""


@cache
def class_ranges() -> tuple[tuple[int, int, int], ...]:
    """Ascending disjoint ranges `(first, last, bits)` of the code points that are in any class."""
    text = files("mllm_compiler.bundle").joinpath("unicode_classes.json").read_text("utf-8")
    known = cast("dict[str, Sequence[tuple[int, int]]]", json.loads(text))
    steps: dict[int, int] = {}
    for name, bit in CLASSES.items():
        for first, last in known[name]:
            steps[first] = steps.get(first, 0) ^ bit
            steps[last + 1] = steps.get(last + 1, 0) ^ bit
    ranges: list[tuple[int, int, int]] = []
    bits = 0
    for start, end in pairwise([*sorted(steps), 0x110000]):
        bits ^= steps[start]
        if bits:
            ranges.append((start, end - 1, bits))
    return tuple(ranges)
