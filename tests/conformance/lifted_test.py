"""Every case of the standard's suite in the `mllm` dialect, where it can be lifted wholly."""

from __future__ import annotations

import pytest

from tests.conformance.cases import cases
from tests.conformance.expectations import check, parameters
from tests.conformance.runners import REFUSED, UNLIFTED, run_lifted


@pytest.mark.parametrize("name", parameters())
def test_case(name: str) -> None:
    check("mllm", name, run_lifted(cases()[name]), allowed=(UNLIFTED, REFUSED))
