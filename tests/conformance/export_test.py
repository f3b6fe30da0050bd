"""Every case that lifts wholly, written back as ONNX: other tools give the expected results."""

from __future__ import annotations

import pytest
from onnx.defs import onnx_opset_version

from mllm_compiler.backends.onnx.export import NEWEST, OLDEST
from tests.conformance.cases import cases, in_fast_tests
from tests.conformance.expectations import passing
from tests.conformance.runners import PASSED, REFUSED, Outcome, run_exported

LIFTED = [
    pytest.param(name, id=name, marks=() if in_fast_tests(name) else pytest.mark.slow)
    for name in sorted(passing("mllm"))
]


@pytest.mark.parametrize("name", LIFTED)
def test_case(name: str) -> None:
    """What the opset of our choice has no type for can be written in the newest one."""
    outcome = run_exported(cases()[name], NEWEST)
    if lacking(outcome):
        outcome = run_exported(cases()[name], onnx_opset_version())
    assert outcome.status == PASSED, outcome.why


@pytest.mark.parametrize("name", LIFTED)
def test_case_in_the_oldest_opset(name: str) -> None:
    """What the opset has no operator for is refused by a code, never written wrongly."""
    outcome = run_exported(cases()[name], OLDEST)
    assert outcome.status == PASSED or lacking(outcome), outcome.why


def lacking(outcome: Outcome) -> bool:
    """Whether the opset has no operator for the case."""
    return outcome.status == REFUSED and "[MLC-U014]" in outcome.why
