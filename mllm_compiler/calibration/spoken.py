"""What a decoder over sound reads: the forced prompt, then the words of the clip."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from mllm_compiler.calibration.words import Words
from mllm_compiler.reference import Array

SPOKEN = 24
"""Tokens that a decoder says of a clip whose words are not beside it."""

Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]


def spoken(words: Words, text: str | None, given: Mapping[str, Array], run: Run) -> Array:
    """The tokens, [1, tokens]: of the words, or those that the decoder chooses one by one.

    Args:
        words: The model's tokenizer and forced prompt.
        text: The words, where they are known.
        given: The other inputs of the decoder.
        run: Gives the decoder's results for all inputs.
    """
    ids = list(words.settings.forced_prompt) or [0]
    if text is not None:
        said = words.ids(f" {text}")
        return np.array([ids + said], np.int64)
    for _ in range(SPOKEN):
        logits = run({**given, "input_ids": np.array([ids], np.int64)})["logits"][0, -1].copy()
        logits[list(words.settings.suppress)] = -np.inf
        token = int(logits.argmax())
        if token in words.settings.stop:
            break
        ids.append(token)
    return np.array([ids], np.int64)
