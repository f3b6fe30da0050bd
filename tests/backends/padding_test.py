"""Which graph of static shapes an input is padded to, and where its elements stand in it."""

from __future__ import annotations

import numpy as np
import pytest

from mllm_compiler.backends.buckets import Bucketed
from mllm_compiler.backends.padding import Fit
from mllm_compiler.dialects.dims import Dim
from mllm_compiler.errors import CompileError

ONE, TWO, THREE = (Dim.const(n) for n in (1, 2, 3))
T, P = Dim.symbol("t"), Dim.symbol("p")
DECODER = Bucketed(
    entry="decoder",
    inputs={"ids": (ONE, T), "past": (TWO, P)},
    outputs={"logits": (ONE, T, THREE), "present": (TWO, P + T)},
    least={"t": 1, "p": 0},
    left=["p"],
    variants={"large": {"t": 4, "p": 6}, "long": {"t": 4, "p": 3}, "small": {"t": 2, "p": 3}},
)


def inputs(tokens: int, past: int) -> dict[str, np.ndarray]:
    return {"ids": np.ones((1, tokens), np.int64), "past": np.full((2, past), 2.0, np.float32)}


@pytest.mark.parametrize(
    ("tokens", "past", "variant"),
    [(1, 0, "small"), (2, 3, "small"), (3, 3, "long"), (1, 4, "large"), (4, 6, "large")],
)
def test_the_smallest_graph_that_fits_is_chosen(tokens: int, past: int, variant: str) -> None:
    assert Fit.of(DECODER, inputs(tokens, past)).variant == variant


def test_padding_stands_behind_tokens_and_before_the_past() -> None:
    padded = Fit.of(DECODER, inputs(1, 2)).pad(inputs(1, 2), ["length.p", "past", "ids"])
    assert list(padded) == ["length.p", "past", "ids"]
    assert padded["length.p"].tolist() == [2]
    assert padded["past"].tolist() == [[0, 2, 2], [0, 2, 2]]
    assert padded["ids"].tolist() == [[1, 0]]
    assert padded["past"].dtype == np.float32


def test_what_is_cut_is_what_was_real() -> None:
    present = np.arange(10, dtype=np.float32).reshape(2, 5)
    logits = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
    got = Fit.of(DECODER, inputs(1, 2)).cut({"present": present, "logits": logits})
    assert got["present"].tolist() == [[1, 2, 3], [6, 7, 8]]
    assert got["logits"].tolist() == [[[0, 1, 2]]]


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        (inputs(5, 0), "MLC-X005", "t = 5 exceeds the compiled bound 4"),
        (inputs(0, 0), "MLC-X005", "t = 0 is below the compiled bound 1"),
        (inputs(1, 7), "MLC-X005", "p = 7 exceeds the compiled bound 6"),
        ({"ids": np.ones((1, 1))}, "MLC-X001", "input 'past' is missing"),
        ({**inputs(1, 1), "x": np.ones(1)}, "MLC-X001", "input 'x' is not known"),
        ({**inputs(1, 1), "ids": np.ones(1)}, "MLC-X001", "input 'ids' has rank 2, not 1"),
        ({**inputs(1, 1), "ids": np.ones((2, 1))}, "MLC-X001", "dimension 0 (1) is 1, not 2"),
    ],
)
def test_what_does_not_fit_is_named(given: dict, code: str, words: str) -> None:
    with pytest.raises(CompileError) as caught:
        Fit.of(DECODER, given)
    assert caught.value.code == code
    assert caught.value.location == "decoder"
    assert words in caught.value.message
