"""Mutants of valid models compile or are refused in one located line; `run.py` tries many more."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.attempt import COMPILED, FindingError, Sandbox
from tests.fuzz.mutations import mutant
from tests.fuzz.run import compile_all
from tests.fuzz.seeds import own


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    return Sandbox(tmp_path_factory.mktemp("fuzz").resolve())


def mutants() -> st.SearchStrategy[bytes]:
    """Mutants that shrink to fewer and plainer changes."""
    return st.randoms(use_true_random=False).map(mutant)


@given(mutants())
@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
def test_a_mutant_is_compiled_or_refused(sandbox: Sandbox, data: bytes) -> None:
    sandbox.attempt(data)


def test_the_same_number_is_the_same_mutant() -> None:
    made = [mutant(random.Random(number)) for number in range(50)]
    assert made == [mutant(random.Random(number)) for number in range(50)]
    assert len(set(made)) > 45


def test_the_seeds_themselves_are_no_findings(sandbox: Sandbox) -> None:
    outcomes = Counter(sandbox.attempt(data) for data in own())
    assert outcomes[COMPILED] > len(own()) // 2
    assert set(outcomes) <= {COMPILED, "MLC-R001"}


def test_what_must_not_be_is_a_finding(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The detectors detect: a fault of ours, a second line, a file outside, a file left behind."""
    elsewhere = tmp_path / "elsewhere"
    worked = {
        "status 70": lambda words: fails(70, "mllmc: error: KeyError [MLC-F000]\n"),
        "status 1": lambda words: fails(1, "a.onnx: error: one [MLC-I001]\na second line\n"),
        "it wrote to": lambda words: elsewhere.write_bytes(b"x") and 0,
        "it left": lambda words: left(sandbox) or fails(1, "a.onnx: error: one [MLC-I001] (x)\n"),
        "more memory": lambda words: fails(1, "mllmc: error: out of memory [MLC-X004] (x)\n"),
    }
    for message, command in worked.items():
        monkeypatch.setattr("tests.fuzz.attempt.run", command)
        with pytest.raises(FindingError, match=message):
            sandbox.attempt(b"")
        for path in sandbox.output.parent.iterdir():
            path.unlink()


def fails(status: int, text: str) -> int:
    import sys

    sys.stderr.write(text)
    return status


def left(sandbox: Sandbox) -> None:
    sandbox.output.with_name(".partial").write_bytes(b"")


@pytest.mark.slow
def test_children_answer_for_each_mutant_or_are_found_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert compile_all(range(40), 2, until=float("inf")).outcomes.total() == 40
    monkeypatch.setattr("tests.fuzz.run.PROCESSOR_S", 0.5)
    monkeypatch.setattr("tests.fuzz.run.Sandbox.attempt", spin)
    tally = compile_all(range(2), 2, until=float("inf"))
    assert set(tally.findings.values()) == {"it takes more than 0.5 s of processor time"}


def spin(sandbox: Sandbox, data: bytes) -> str:
    while True:
        pass
