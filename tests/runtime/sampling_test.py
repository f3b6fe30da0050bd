"""Sampling in C against a second implementation of the same specification, and its statistics."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mllm_compiler.generation.sampling import Sampler
from runtime_stub.library import CData
from tests.runtime.internals import Internals

Logits = NDArray[np.float32]


class CSampler:
    """The sampler in C with its memory."""

    def __init__(
        self,
        c: Internals,
        size: int,
        *,
        temperature: float = 1.0,
        top_p: float = 1.0,
        seed: int = 0,
        flags: NDArray[np.uint8] | None = None,
    ) -> None:
        self.c = c
        self.at: CData = c.ffi.new("mllm_sampler *")
        self.at.temperature, self.at.top_p = temperature, top_p
        self.weights, self.order = c.ffi.new("double[]", size), c.ffi.new("uint32_t[]", size)
        self.at.weights, self.at.order = self.weights, self.order
        if flags is not None:
            self.flags = c.ffi.new("uint8_t[]", flags.tobytes())
            self.at.suppressed = self.flags
        c.lib.mllm_random_seed(c.ffi.addressof(self.at, "random"), seed)

    def choose(self, logits: Logits, first: bool = False) -> int:
        given = self.c.ffi.cast("const float *", logits.ctypes.data)
        return self.c.lib.mllm_sample(self.at, given, len(logits), first)


@given(
    st.integers(0, 2**64 - 1),
    st.integers(1, 300),
    st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    st.sampled_from([0.0001, 0.3, 0.9, 1.0]),
    st.booleans(),
)
@settings(deadline=None)
def test_draws_what_the_specification_says(
    internals: Internals, seed: int, size: int, temperature: float, top_p: float, rounded: bool
) -> None:
    rng = np.random.default_rng(seed % 1000)
    flags = rng.choice([0, 0, 0, 1, 2], size).astype(np.uint8)
    suppress = frozenset(np.flatnonzero(flags == 1).tolist())
    begin = frozenset(np.flatnonzero(flags == 2).tolist())
    if len(suppress | begin) == size:
        return
    keywords = {"temperature": temperature, "top_p": top_p, "seed": seed}
    ours = CSampler(internals, size, flags=flags, **keywords)  # type: ignore[arg-type]
    plain = Sampler(suppress=suppress, begin_suppress=begin, **keywords)  # type: ignore[arg-type]
    for step in range(20):
        logits = rng.standard_normal(size).astype(np.float32) * 3
        logits = np.round(logits) if rounded else logits  # many are equal
        assert ours.choose(logits, step == 0) == plain.choose(logits, first=step == 0)


def test_top_p_keeps_the_shortest_prefix(internals: Internals) -> None:
    logits = np.log(np.array([0.1, 0.4, 0.2, 0.3], np.float32))
    sampler = CSampler(internals, 4, top_p=0.65)
    assert {sampler.choose(logits) for _ in range(300)} == {1, 3}


def test_frequencies_follow_the_temperature(internals: Internals) -> None:
    logits = np.array([0.0, 1.0, 2.0, -1.0], np.float32)
    sampler = CSampler(internals, 4, temperature=0.7, seed=5)
    counts = np.bincount([sampler.choose(logits) for _ in range(20000)], minlength=4)
    expected = np.exp(logits.astype(np.float64) / 0.7)
    expected /= expected.sum()
    spread = np.sqrt(20000 * expected * (1 - expected))
    assert (np.abs(counts - 20000 * expected) < 4.5 * spread).all()


def test_the_generator_is_xoshiro256(internals: Internals) -> None:
    """The first outputs for the state 1, 2, 3, 4, as its authors' code prints them."""
    random = internals.ffi.new("mllm_random *")
    random.state = [1, 2, 3, 4]
    drawn = [internals.lib.mllm_random_next(random) for _ in range(4)]
    assert drawn == [11520, 0, 1509978240, 1215971899390074240]


@pytest.mark.parametrize("x", [0.0, -1e-9, -0.5, -1.0, -17.3, -699.9])
def test_exponential(internals: Internals, x: float) -> None:
    assert internals.lib.mllm_fixed_exp(x) == pytest.approx(math.exp(x), rel=3e-15)


def test_greedy_takes_the_first_of_equals_and_no_nan(internals: Internals) -> None:
    logits = np.array([np.nan, 1.0, 3.0, 3.0], np.float32)
    assert CSampler(internals, 4, temperature=0.0).choose(logits) == 2
