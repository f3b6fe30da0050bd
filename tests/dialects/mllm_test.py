"""Every op of the `mllm` dialect: forms parse back, docstrings number what verifiers cite."""

from __future__ import annotations

import inspect
import re
from io import StringIO
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.parser import Parser
from xdsl.printer import Printer

from mllm_compiler.dialects import make_context
from mllm_compiler.dialects.mllm import OPS

EXAMPLES = Path(__file__).with_name("mllm.mlir").read_text()


def parsed(text: str) -> ModuleOp:
    return Parser(make_context(), text).parse_module()


def generic(module: ModuleOp) -> str:
    out = StringIO()
    Printer(out, print_generic_format=True).print_op(module)
    return out.getvalue()


@pytest.fixture(scope="module")
def module() -> ModuleOp:
    return parsed(EXAMPLES)


def test_every_op_has_an_example_that_verifies(module: ModuleOp) -> None:
    module.verify()
    assert {type(op) for op in module.walk()} >= set(OPS)


def test_the_custom_form_parses_back(module: ModuleOp) -> None:
    assert '"mllm.' not in str(module).replace('"mllm.name"', "")
    assert parsed(str(module)).is_structurally_equivalent(module)


def test_the_generic_form_parses_back(module: ModuleOp) -> None:
    assert parsed(generic(module)).is_structurally_equivalent(module)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_a_docstring_numbers_the_constraints_of_the_verifier(op: type[Operation]) -> None:
    numbered = [int(n) for n in re.findall(r"^\s+C(\d+)  ", op.__doc__ or "", re.M)]
    assert numbered == list(range(1, len(numbered) + 1))
    checks = re.findall(r"check(?:_broadcast)?\(\s*(?:self|op), (\d+)", inspect.getsource(op))
    if "verify_interface" in inspect.getsource(op):
        checks += re.findall(r"check\(\s*self, (\d+),", inspect.getsource(op.__mro__[1]))
    checks += ["1"] if "_check_parameters" in inspect.getsource(op) else []
    assert {int(n) for n in checks} == set(numbered)
