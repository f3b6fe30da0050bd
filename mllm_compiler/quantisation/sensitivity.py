"""Mixed precision: from a table of measured losses to a format for each layer in a byte budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

STATES = 8192
"""Partial assignments that are kept; below so many, the result is the best of all."""


@dataclass(frozen=True)
class Option:
    """One format of a layer: its name, the bytes it takes, the loss it was measured to add."""

    name: str
    size: int
    loss: float


def assign(table: Mapping[str, Sequence[Option]], budget: int) -> dict[str, Option] | None:
    """The option of each layer with the least sum of losses whose sizes fit the budget.

    Losses of layers are taken to add up. Partial assignments that another beats in both size and
    loss are dropped, and, above `STATES` of them, all but the best in each slice of sizes.

    Args:
        table: what each layer may become; at least one option each.
        budget: bytes of all together.

    Returns:
        An option a layer; None where the smallest options are over the budget.
    """
    sizes, losses = np.zeros(1, np.int64), np.zeros(1)
    steps: list[tuple[NDArray[np.intp], NDArray[np.intp]]] = []
    for options in table.values():
        size = np.concatenate([sizes + option.size for option in options])
        loss = np.concatenate([losses + option.loss for option in options])
        kept = _frontier(size, loss, budget)
        if not len(kept):
            return None
        steps.append((kept % len(sizes), kept // len(sizes)))
        sizes, losses = size[kept], loss[kept]
    state = int(np.argmin(losses))
    found: dict[str, Option] = {}
    for name, (before, chosen) in zip(reversed(list(table)), reversed(steps), strict=True):
        found[name] = table[name][int(chosen[state])]
        state = int(before[state])
    return {name: found[name] for name in table}


def _frontier(size: NDArray[np.int64], loss: NDArray[np.float64], budget: int) -> NDArray[np.intp]:
    """Indices of what fits and nothing beats, by size; thinned out to `STATES`."""
    order = np.lexsort((loss, size))
    order = order[size[order] <= budget]
    least = np.minimum.accumulate(loss[order])
    falls = np.ones(len(order), bool)
    falls[1:] = least[1:] < least[:-1]
    kept = order[falls]
    if len(kept) <= STATES:
        return kept
    # The last of each slice of sizes has the least loss.
    slices = (size[kept] - size[kept[0]]) * STATES // (size[kept[-1]] - size[kept[0]] + 1)
    return kept[np.append(slices[1:] != slices[:-1], True)]
