"""What the language model reads and says: the prompt around the frame, and the captions."""

# pyright: basic, reportMissingImports=false

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from frames import NUMBERS, meeting
from tokenizers import Tokenizer
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

PROMPT = "Describe the meeting."
BEFORE = "<|im_start|>user\n"
AFTER = f"\n{PROMPT}<|im_end|>\n<|im_start|>assistant\n"
STOP = "<|im_end|>"
IGNORED = -100
_MINOR = 0.4  # loss weight of tokens that decide nothing
_DECIDING = frozenset(
    [*NUMBERS, "one", "nobody", "nothing", "a", "slide", "chart", "photo", "no", "good", "poor"]
)


class Dialogue:
    """Token ids of prompt and captions.

    Attributes:
        before: Ids in front of the frame's 64 tokens.
        after: Ids between the frame and the answer.
        stop: Id that ends an answer.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Encode the fixed parts."""
        self._tokenizer = tokenizer
        self.before = self._encode(BEFORE)
        self.after = self._encode(AFTER)
        (self.stop,) = self._encode(STOP)

    def batch(self, seeds: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return padded caption ids and loss weights, both [batch, tokens]; padding weighs 0."""
        captions = [self._encode(meeting(seed).caption() + STOP) for seed in seeds]
        longest = max(len(caption) for caption in captions)
        ids = torch.full((len(captions), longest), self.stop)
        weights = torch.zeros(len(captions), longest)
        for row, caption in enumerate(captions):
            ids[row, : len(caption)] = torch.tensor(caption)
            weights[row, : len(caption)] = torch.tensor([self._weight(i) for i in caption])
        return ids, weights

    def text(self, ids: Sequence[int]) -> str:
        """Decode an answer."""
        return self._tokenizer.decode(list(ids))

    def _weight(self, token: int) -> float:
        return 1.0 if self._tokenizer.decode([token]).strip() in _DECIDING else _MINOR

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids
