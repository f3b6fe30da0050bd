"""The rknn dialect: its verifier names the constraint that an op breaks, and its ops parse back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from xdsl.dialects.builtin import f32, f64, i64
from xdsl.dialects.test import TestOp
from xdsl.ir import Attribute, SSAValue
from xdsl.utils.exceptions import VerifyException

from mllm_compiler.dialects import make_context
from mllm_compiler.dialects.dims import Dim, tensor_of
from mllm_compiler.dialects.mllm import ConstantOp
from mllm_compiler.dialects.onnx_attributes import attribute_of
from mllm_compiler.dialects.rknn import OPERATORS, BuildAttr, RknnOp, operators


def value(*dims: int | Dim, element: Attribute = f32) -> SSAValue:
    return TestOp(result_types=[tensor_of(element, dims)]).results[0]


def listed(*numbers: int) -> SSAValue:
    return ConstantOp.of(np.array(numbers, np.int64)).result


SYMBOL = Dim.symbol("n")
INT = {"axis": attribute_of(0, "int")}
BROKEN = [
    ("C3", "Concat", [value(2)], [tensor_of(f32, (2,))], {}),
    ("C5", "Add", [value(2), value(2, element=i64)], [tensor_of(f32, (2,))], {}),
    ("C6", "Neg", [value(SYMBOL)], [tensor_of(f32, (SYMBOL,))], {}),
    ("C7", "Neg", [value(2, element=f64)], [tensor_of(f64, (2,))], {}),
    ("C8", "Reshape", [value(4), value(2, element=i64)], [tensor_of(f32, (2, 2))], {}),
    ("C9", "Reshape", [value(4), listed(2, 2)], [tensor_of(f32, (4, 1))], {}),
    ("C9", "MatMul", [value(2, 3), value(4, 5)], [tensor_of(f32, (2, 5))], {}),
    ("C9", "Concat", [value(2), value(3)], [tensor_of(f32, (4,))], INT),
]


@pytest.mark.parametrize(("constraint", "name", "operands", "results", "attributes"), BROKEN)
def test_a_broken_constraint_is_named(
    constraint: str,
    name: str,
    operands: Sequence[SSAValue],
    results: Sequence[Attribute],
    attributes: Mapping[str, Attribute],
) -> None:
    op = operators()[name].make(operands, results, attributes)
    with pytest.raises(VerifyException, match=constraint):
        op.verify_()


def test_what_the_standard_infers_is_accepted() -> None:
    op = operators()["MatMul"].make([value(2, 3), value(3, 5)], [tensor_of(f32, (2, 5))])
    op.verify_()
    assert op.opset == 19


def test_every_operator_is_the_standards() -> None:
    """Each has the standard's documentation and schema under a name of its own."""
    for name in OPERATORS:
        kind = operators()[name]
        assert issubclass(kind, RknnOp)
        assert (kind.name, kind.STANDARD) == (f"rknn.{name}", f"onnx.{name}")
        assert kind.__doc__


def test_what_is_built_parses_back() -> None:
    from xdsl.parser import Parser

    build = BuildAttr.of("rk3576", "w4a16", "group32")
    context = make_context()
    context.load_registered_dialect("rknn")
    assert str(build) == '#rknn.build<"rk3576", "w4a16", "group32">'
    assert Parser(context, str(build)).parse_attribute() == build
