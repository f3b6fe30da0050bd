"""Predictions against SciPy's softmax and entropy, and scikit-learn's log loss."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax
from scipy.stats import entropy
from sklearn.metrics import accuracy_score, log_loss

from mllm_compiler.quality.prediction import Predictions, log_probabilities

TOKENS, WORDS = 40, 12


@pytest.fixture
def logits() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    plain = (random.standard_normal((TOKENS, WORDS)) * 3).astype(np.float32)
    other = plain + random.standard_normal((TOKENS, WORDS)).astype(np.float32)
    targets = random.integers(0, WORDS, TOKENS)
    targets[0] = plain[0].argmax()
    return plain, other, targets


def test_log_probabilities_are_those_of_scipy() -> None:
    far = np.array([[1e4, 0.0, -1e4], [1.0, 2.0, 3.0]])
    np.testing.assert_allclose(log_probabilities(far), log_softmax(far, -1), rtol=1e-12)


def test_metrics_are_those_of_scikit_learn(
    logits: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    plain, other, targets = logits
    sums = Predictions()
    for part in (slice(0, 15), slice(15, None)):
        sums.add(plain[part], other[part], targets[part])
    found, labels = sums.metrics(), np.arange(WORDS)
    p, q = (np.exp(log_softmax(x.astype(np.float64), -1)) for x in (plain, other))
    losses = [log_loss(targets, probabilities, labels=labels) for probabilities in (p, q)]
    assert found["perplexity_float"] == pytest.approx(np.exp(losses[0]))
    assert found["perplexity"] == pytest.approx(np.exp(losses[1]))
    assert found["perplexity_increase"] == pytest.approx(100 * (np.exp(losses[1] - losses[0]) - 1))
    assert found["kl"] == pytest.approx(entropy(p, q, axis=1).mean())
    right = [100 * accuracy_score(targets, x.argmax(-1)) for x in (plain, other)]
    assert (found["top1_float"], found["top1"]) == pytest.approx(right)
    assert found["top1_drop"] == pytest.approx(right[0] - right[1])
    changed = 100 - 100 * accuracy_score(plain.argmax(-1), other.argmax(-1))
    assert 0 < found["changed_tokens"] == pytest.approx(changed)
    speech = sums.likelihood()
    assert speech["speech_loss_increase"] == pytest.approx(losses[1] - losses[0])


def test_the_same_logits_differ_in_nothing(
    logits: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    plain, _, targets = logits
    sums = Predictions()
    sums.add(plain, plain, targets)
    found = sums.metrics()
    names = ("kl", "top1_drop", "changed_tokens", "perplexity_increase")
    assert [found[name] for name in names] == [0.0] * 4


def test_not_a_number_stays_one() -> None:
    sums = Predictions()
    sums.add(np.ones((2, 3)), np.array([[1.0, 2.0, np.nan], [0.0, 1.0, 2.0]]), np.array([0, 1]))
    assert np.isnan(sums.metrics()["perplexity"])
    assert np.isnan(sums.metrics()["kl"])


def test_no_tokens_have_no_metrics() -> None:
    assert Predictions().metrics() == {}
    assert Predictions().likelihood() == {}
