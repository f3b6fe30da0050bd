"""The sampler: fixed numbers, exact suppression, and the distribution that it promises."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mllm_compiler.generation.sampling import Random, Sampler, fixed_exp


def test_the_generator_gives_the_published_sequence() -> None:
    random = Random(0)
    random._state = [1, 2, 3, 4]
    assert [random.next() for _ in range(5)] == [
        11520,
        0,
        1509978240,
        1215971899390074240,
        1216172134540287360,
    ]


def test_a_draw_is_in_range_and_its_seed_decides_it() -> None:
    first, again, other = Random(7), Random(7), Random(8)
    draws = [first.draw() for _ in range(100)]
    assert draws == [again.draw() for _ in range(100)]
    assert draws != [other.draw() for _ in range(100)]
    assert all(0 <= draw < 1 for draw in draws)


def test_the_exponential_is_right_to_the_last_digits() -> None:
    x = -np.linspace(0, 690, 2001)
    np.testing.assert_allclose(fixed_exp(x), np.exp(x), rtol=3e-15)
    assert fixed_exp(np.array([-701.0, -np.inf])).tolist() == [0.0, 0.0]


def test_greedy_takes_the_first_of_equals_and_no_nan() -> None:
    logits = np.array([np.nan, 3.0, 5.0, 5.0, -1.0], np.float32)
    assert Sampler().choose(logits, first=False) == 2


def test_suppressed_tokens_are_never_chosen() -> None:
    logits = np.array([9.0, 8.0, 7.0, 6.0], np.float32)
    sampler = Sampler(suppress=frozenset({0, 99}), begin_suppress=frozenset({1}))
    assert sampler.choose(logits, first=True) == 2
    assert sampler.choose(logits, first=False) == 1
    warm = Sampler(temperature=5.0, suppress=frozenset({0}), begin_suppress=frozenset({1}))
    assert {warm.choose(logits, first=True) for _ in range(200)} == {2, 3}


def test_top_p_keeps_the_shortest_prefix_that_reaches_it() -> None:
    logits = np.log(np.array([0.5, 0.25, 0.125, 0.125], np.float32))
    for top_p, kept in ((0.4, {0}), (0.6, {0, 1}), (0.75, {0, 1}), (0.8, {0, 1, 2}), (1.0, None)):
        sampler = Sampler(temperature=1.0, top_p=top_p, seed=3)
        seen = {sampler.choose(logits, first=False) for _ in range(400)}
        assert seen == (kept or {0, 1, 2, 3})


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_the_distribution_is_the_softmax(temperature: float) -> None:
    logits = np.array([1.0, 0.0, -1.0], np.float32)
    weights = np.exp(logits / temperature)
    expected = weights / weights.sum()
    sampler, count = Sampler(temperature=temperature, seed=11), 4000
    draws = np.bincount([sampler.choose(logits, first=False) for _ in range(count)], minlength=3)
    spread = 4 * np.sqrt(expected * (1 - expected) / count)
    assert np.all(np.abs(draws / count - expected) < spread)
    assert math.isclose(draws.sum(), count)
