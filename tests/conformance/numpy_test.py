"""Every case of the standard's suite on the reference, as imported and with inferred shapes."""

from __future__ import annotations

import pytest

from tests.conformance.cases import cases
from tests.conformance.expectations import check, known, parameters
from tests.conformance.runners import run_numpy


@pytest.mark.parametrize("name", parameters())
def test_case(name: str) -> None:
    check("numpy", name, run_numpy(cases()[name]))


@pytest.mark.parametrize("level", ["numpy", "mllm", "c"])
def test_known_failures_are_cases_and_have_a_reason(level: str) -> None:
    assert not known(level).keys() - cases().keys()
    assert all(len(reason) > 20 for reason in known(level).values())
