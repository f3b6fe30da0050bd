"""Greedy decoding of connectionist temporal classification (Graves et al. 2006)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def greedy(scores: npt.NDArray[np.floating], blank: int = 0) -> list[int]:
    """Return the labels of the best path: its runs, without the blanks.

    Args:
        scores: [steps, classes], probabilities or logits.
        blank: The class that stands for no label.
    """
    path = scores.argmax(-1)
    starts = np.flatnonzero(np.diff(path, prepend=-1))
    return [int(label) for label in path[starts] if label != blank]
