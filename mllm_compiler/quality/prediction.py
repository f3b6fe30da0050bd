"""What a language model predicts of a text: likelihood, and how two models' predictions differ.

Logits are [tokens, vocabulary]; row t predicts the token behind token t.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.generic]
Ids = NDArray[np.int64]

Doubles = NDArray[np.float64]


def log_probabilities(logits: Logits) -> Doubles:
    """The logarithm of the softmax along the last axis, in double precision."""
    wide = logits.astype(np.float64)
    shifted = wide - wide.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


@dataclass
class Predictions:
    """Sums over the tokens of texts that two models predicted.

    Attributes:
        tokens: How many.
        float_loss: The sum of -log p of the text's tokens, of the float model.
        loss: The same of the other one.
        divergence: The sum of the KL divergence from the float model to the other one, in nats.
        float_right: How often the float model's first choice was the text's token.
        right: The same of the other one.
        changed: How often their first choices differ.
    """

    tokens: int = 0
    float_loss: float = 0.0
    loss: float = 0.0
    divergence: float = 0.0
    float_right: int = 0
    right: int = 0
    changed: int = 0

    def add(self, float_logits: Logits, logits: Logits, targets: Ids) -> None:
        """Takes the predictions of some tokens into account.

        Args:
            float_logits: [tokens, vocabulary] of the float model.
            logits: The same of the other one.
            targets: [tokens], what stood there.
        """
        rows = np.arange(len(targets))
        expected, given = log_probabilities(float_logits), log_probabilities(logits)
        first, second = expected.argmax(-1), given.argmax(-1)
        self.tokens += len(targets)
        self.float_loss -= float(expected[rows, targets].sum())
        self.loss -= float(given[rows, targets].sum())
        self.divergence += float((np.exp(expected) * (expected - given)).sum())
        self.float_right += int((first == targets).sum())
        self.right += int((second == targets).sum())
        self.changed += int((first != second).sum())

    def metrics(self) -> dict[str, float]:
        """By name; accuracies and rates are in percent."""
        if not self.tokens:
            return {}
        ours, theirs = self.loss / self.tokens, self.float_loss / self.tokens
        return {
            "perplexity": float(np.exp(ours)),
            "perplexity_float": float(np.exp(theirs)),
            "perplexity_increase": 100 * float(np.expm1(ours - theirs)),
            "kl": self.divergence / self.tokens,
            "top1": 100 * self.right / self.tokens,
            "top1_float": 100 * self.float_right / self.tokens,
            "top1_drop": 100 * (self.float_right - self.right) / self.tokens,
            "changed_tokens": 100 * self.changed / self.tokens,
        }

    def likelihood(self) -> dict[str, float]:
        """Of a transcript, teacher-forced: -log p a token, in nats."""
        if not self.tokens:
            return {}
        ours, theirs = self.loss / self.tokens, self.float_loss / self.tokens
        return {
            "speech_loss": ours,
            "speech_loss_float": theirs,
            "speech_loss_increase": ours - theirs,
        }
