"""Assignments under a budget beside trying them all, and beside the fractional bound of Dantzig."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllm_compiler.quantisation.sensitivity import Option, assign

TABLES = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3),
    st.lists(
        st.builds(Option, st.just("f"), st.integers(1, 30), st.integers(0, 50).map(float)),
        min_size=1,
        max_size=3,
    ),
    min_size=1,
    max_size=6,
)


def least_of_all(table: dict[str, list[Option]], budget: int) -> float | None:
    sums = [
        sum(option.loss for option in options)
        for options in product(*table.values())
        if sum(option.size for option in options) <= budget
    ]
    return min(sums, default=None)


@settings(deadline=None)
@given(TABLES, st.integers(1, 120))
def test_no_assignment_within_the_budget_is_better(
    table: dict[str, list[Option]], budget: int
) -> None:
    found = assign(table, budget)
    least = least_of_all(table, budget)
    if least is None:
        assert found is None
        return
    assert found is not None
    assert list(found) == list(table)
    assert all(option in table[name] for name, option in found.items())
    assert sum(option.size for option in found.values()) <= budget
    assert sum(option.loss for option in found.values()) == least


@pytest.mark.parametrize("part", [0.2, 0.5, 0.9])
def test_thinned_assignments_of_many_layers_stay_near_the_fractional_bound(part: float) -> None:
    """No assignment of 210 layers to four or eight bits is below the bound that may cut a layer."""
    generator = np.random.default_rng(3)
    size = generator.integers(50_000, 500_000, 210)
    loss = generator.lognormal(0, 2, 210)
    table = {
        f"layer {i}": [Option("w4", int(size[i]), loss[i]), Option("w8", 2 * int(size[i]), 0.0)]
        for i in range(210)
    }
    extra = int(size.sum() * part)
    found = assign(table, int(size.sum()) + extra)
    assert found is not None
    order = np.argsort(-loss / size)
    paid = np.cumsum(size[order])
    kept = np.clip((extra - paid + size[order]) / size[order], 0, 1)
    bound = float((loss[order] * (1 - kept)).sum())
    assert sum(option.size for option in found.values()) <= size.sum() + extra
    assert bound - 1e-9 <= sum(option.loss for option in found.values()) <= bound * 1.02 + 1e-3
