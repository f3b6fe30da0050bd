"""A program whose codes do not fit is refused in one line, before a byte of it is read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.runtime.cases import Case
from tests.runtime.cases_codes import MAKERS
from tests.runtime.library import Model, RunError, Session

HUGE = 1 << 62
CASES = {case.name: case for make in MAKERS for case in make()}

LINEAR = "quantized-linear-2x96x40-32-i4"
REALS = "dequantized-linear-1x600x32-128-ui4"
ROWS = "dequantized-embedding-600x32-128-ui4"
WRONG: list[tuple[str, int, int]] = [
    *((name, 0, value) for name in (LINEAR, REALS, ROWS) for value in (-1, 16, 4096, HUGE)),
    *((name, at, value) for name in (LINEAR, REALS, ROWS) for at in (1, 2) for value in (-1, 6)),
    *((name, 1, value) for name in (LINEAR, REALS, ROWS) for value in (0, 1, 4)),
    *((name, 3, value) for name in (LINEAR, REALS, ROWS) for value in (-1, 1, 7, HUGE)),
    (REALS, 4, 5),
    ("quantize-u1-(4, 50)-(4, 4)-1-True", 0, 2),
    ("quantize-u1-(4, 50)-(4, 4)-1-True", 0, -2),
    ("quantize-u1-(4, 50)-(4, 4)-1-True", 1, 0),
    ("quantize-u1-(4, 50)-(4, 4)-1-True", 1, HUGE),
    ("dequantize-u1-(4, 50)-(4, 4)-1-True", 1, 7),
    ("dynamic-quantize-i1-1-(3, 70)-1-32-0", 0, 5),
    ("dynamic-quantize-i1-1-(3, 70)-1-32-0", 1, -1),
    ("dynamic-quantize-i1-1-(3, 70)-1-32-0", 1, 16),
    ("unpack-i4-(3, 5)", 0, 9),
    ("unpack-i4-(3, 5)", 0, 4),
]
"""A case, a parameter of it, and what the program says there."""


def refusal(case: Case) -> str:
    session = Session(Model(*case.program()), 1)
    with pytest.raises(RunError) as caught:
        session.run(case.inputs())
    return str(caught.value)


@pytest.mark.parametrize(("name", "at", "value"), WRONG)
def test_a_wrong_parameter_is_refused(name: str, at: int, value: int) -> None:
    case = CASES[name]
    params = [*case.params]
    params[at] = value
    message = refusal(replace(case, params=tuple(params)))
    assert message.endswith("[MLC-X007]")
    assert "\n" not in message


@pytest.mark.parametrize("name", [LINEAR, REALS])
def test_an_operand_of_another_type_or_shape_is_refused(name: str) -> None:
    case = CASES[name]
    for at, operand in enumerate(case.operands):
        if operand is None:
            continue
        wrong = [operand.astype(np.float64), operand.reshape(1, *operand.shape)]
        for instead in wrong:
            operands = (*case.operands[:at], instead, *case.operands[at + 1 :])
            assert refusal(replace(case, operands=operands)).endswith("[MLC-X007]")


def test_an_id_outside_of_the_table_is_refused() -> None:
    case = CASES[ROWS]
    for wrong in (32, -33):
        ids = np.full((2, 3), wrong)
        message = refusal(replace(case, operands=(ids, *case.operands[1:])))
        assert f"token id {wrong} is outside of a vocabulary of 32" in message
