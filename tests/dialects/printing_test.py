"""A module's text parses back to the same numbers, those that are none too: NumPy's bits."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from mllm_compiler.dialects import make_context
from mllm_compiler.dialects.mllm import ConstantOp, array_of
from mllm_compiler.dialects.printing import text_of

INFINITE, NONE = float("inf"), float("nan")


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    "values",
    [
        [[-INFINITE, 0.5, 0.0]],
        [NONE, INFINITE, -0.0],
        [-INFINITE] * 3,
        [-INFINITE],
        -INFINITE,
        [1.5, 2.5],
    ],
    ids=str,
)
def test_constants_come_back_as_they_were(values: object, dtype: type[np.generic]) -> None:
    array = np.array(values, dtype)
    module = ModuleOp([ConstantOp.of(array)])
    (constant,) = Parser(make_context(), text_of(module)).parse_module().body.block.ops
    assert isinstance(constant, ConstantOp)
    found = array_of(constant.value)
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert found.tobytes() == array.tobytes()
