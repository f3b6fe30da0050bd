"""Search for a smaller plan where greedy orders leave a gap.

Buffers are placed from the bottom up: each lies on what was placed before it, and offsets never
fall, as in one plan at least of the least size (Moffitt, "MiniMalloc", ASPLOS 2023). A branch is
left where a buffer no longer fits under the capacity, or all that is to be placed at one time. The
search starts again and again with other preferences, in which buffers that did not fit before come
first (Boussemart et al., ECAI 2004), and with a lower capacity after each success. It counts its
steps and not the time, so that the same buffers have the same plan on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

LARGEST: Final = 2048
"""Buffers of a problem that is searched: which of them meet is a table of their square."""

ATTEMPTS: Final = 8
"""Restarts under one capacity before a larger one is tried."""

PATIENCE: Final = 2
"""Steps of one attempt, for each buffer."""

FORGETTING: Final = 0.98
"""What an attempt leaves of the failures before it."""

NEVER: Final = 1 << 60

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass
class Search:
    """The buffers of a plan, and what was learned of them.

    Attributes:
        first: When each is needed first.
        last: When each is needed last.
        size: The bytes of each, in steps of the alignment.
        step: The alignment.
        meets: [buffers, buffers]: which must not share bytes; None: those whose lives meet.
        failures: How often each did not fit of late.
    """

    first: Ints
    last: Ints
    size: Ints
    step: int
    meets: Flags | None = None
    failures: Floats = field(init=False)
    _meets: list[NDArray[np.intp]] = field(init=False)
    _times: Flags = field(init=False)
    _at: list[NDArray[np.intp]] = field(init=False)
    _random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.size)
        lives = (self.first[:, None] <= self.last) & (self.last[:, None] >= self.first)
        meets = lives if self.meets is None else self.meets.copy()
        np.fill_diagonal(meets, val=False)
        self.failures = np.zeros(count)
        self._meets = [np.flatnonzero(row) for row in meets]
        self._times = _times(self.first, self.last)
        self._at = [np.flatnonzero(column) for column in self._times.T]
        self._random = np.random.default_rng(count)

    def improved(self, bound: int, plan: int, steps: int) -> Ints | None:
        """The offsets of the smallest plan that is found; None where none is below `plan`.

        Args:
            bound: No plan is smaller.
            plan: The size of the plan that there is.
            steps: Placements that are tried.
        """
        best: Ints | None = None
        target, attempts = bound, 0
        while steps > 0 and plan > bound:
            target = min(target, plan - self.step)
            found, taken = self._attempt(target, min(steps, PATIENCE * len(self.size)))
            steps, attempts = steps - taken, attempts + 1
            if found is not None:
                best, plan, attempts = found, int((found + self.size).max()), 0
                target = bound + (plan - bound) * 3 // 4
            elif attempts == ATTEMPTS:
                target, attempts = target + (plan - target) // 2 + self.step, 0
        return best

    def _preferences(self) -> Floats:
        """What is placed first where offsets are the same: by size, life and failures, and luck."""
        by_size, by_life, by_failures = self._random.uniform(0, 1.3, 3)
        life = (self.last - self.first + 1).astype(np.float64)
        luck = self._random.normal(0, 0.3, len(self.size))
        learned = by_failures * np.log1p(self.failures)
        return by_size * np.log(self.size) + by_life * np.log(life) + learned + luck

    def _attempt(self, capacity: int, steps: int) -> tuple[Ints | None, int]:
        """The offsets of a plan under a capacity, if one is found; and the steps that it took."""
        self.failures *= FORGETTING
        preferred = self._preferences()
        state = _State.empty(self.size, self._times)
        choices, undone = [self._choices(state, 0, preferred)], list[tuple[int, Ints]]()
        for step in range(1, steps + 1):
            while not choices[-1]:
                choices.pop()
                if not undone:
                    return None, step
                self._take_back(state, *undone.pop())
            at = choices[-1].pop()
            undone.append((at, self._put(state, at)))
            if not state.left.any():
                return state.offset, step
            if self._fits(state, capacity):
                choices.append(self._choices(state, int(state.offset[at]), preferred))
            else:
                self._take_back(state, *undone.pop())
        return None, steps

    def _choices(self, state: _State, lowest: int, preferred: Floats) -> list[int]:
        """What may come next, the best last: what leaves no room below that another one fits in."""
        end = (state.offset + self.size)[state.left].min()
        able = state.left & (state.offset < end) & (state.offset >= lowest)
        found = np.flatnonzero(able)
        order = np.lexsort((-preferred[found], state.offset[found]))
        return found[order[::-1]].tolist()

    def _put(self, state: _State, at: int) -> Ints:
        """Places a buffer; what meets it lies above. The answer is where that could lie before."""
        others = self._meets[at]
        before = state.offset[others]
        raised = np.maximum(before, state.offset[at] + self.size[at])
        state.offset[others] = np.where(state.left[others], raised, before)
        state.left[at] = False
        state.bytes[self._at[at]] -= self.size[at]
        return before

    def _take_back(self, state: _State, at: int, before: Ints) -> None:
        state.offset[self._meets[at]] = before
        state.left[at] = True
        state.bytes[self._at[at]] += self.size[at]

    def _fits(self, state: _State, capacity: int) -> bool:
        """Whether what is left may still fit; what shows that it does not has failed once more."""
        high = state.left & (state.offset + self.size > capacity)
        if high.any():
            self.failures[high] += 1
            return False
        lowest = np.where(self._times, np.where(state.left, state.offset, NEVER), NEVER).min(1)
        full = (state.bytes > 0) & (lowest + state.bytes > capacity)
        if full.any():
            self.failures[self._times[full].any(0) & state.left] += 1
            return False
        return True


@dataclass
class _State:
    """A plan while it is made.

    Attributes:
        offset: Where each buffer lies, or could lie at the lowest.
        left: Whether it is still to be placed.
        bytes: The bytes that are still to be placed, at each time.
    """

    offset: Ints
    left: Flags
    bytes: Ints

    @staticmethod
    def empty(size: Ints, times: Flags) -> _State:
        """Nothing is placed."""
        count = len(size)
        return _State(np.zeros(count, np.int64), np.ones(count, np.bool_), times @ size)


def _times(first: Ints, last: Ints) -> Flags:
    """[times, buffers]: what lives at each time at which no more do, before or after, with it."""
    starts: NDArray[Any] = np.unique(first)
    ends = np.append(starts[1:], NEVER)
    most = [bool(((last >= a) & (last < b)).any()) for a, b in zip(starts, ends, strict=True)]
    chosen = starts[np.array(most, np.bool_)][:, None]
    return (first <= chosen) & (last >= chosen)
