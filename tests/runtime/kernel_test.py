"""Every kernel against NumPy, with every instruction set that this processor has."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime.cases import Case, all_cases
from tests.runtime.library import Model, RunError, Session
from tests.runtime.program_writer import ProgramWriter

CPUS = ("scalar", "avx2", "avxvnni", "avx512", "avx512vnni")


def has(cpu: str) -> bool:
    try:
        Model(*ProgramWriter().finish(), cpu)
    except RunError:
        return False
    return True


HERE = [cpu for cpu in CPUS if has(cpu)]


@pytest.mark.parametrize("cpu", HERE)
@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_agrees_with_numpy(case: Case, cpu: str) -> None:
    model = Model(*case.program(), cpu)
    for threads in (1, 3):
        (y,) = Session(model, threads).run(case.inputs())
        np.testing.assert_allclose(y, case.expected, rtol=case.rtol, atol=case.atol)


def test_scalar_code_runs_everywhere() -> None:
    assert HERE[0] == "scalar"


def test_unknown_instruction_set_is_an_answer() -> None:
    with pytest.raises(RunError, match="no 'z80' kernels"):
        Model(*ProgramWriter().finish(), "z80")
