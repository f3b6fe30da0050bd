"""The verifier of `onnx` operators: each constraint has an operator that breaks it.

Counts that are the same in every opset are checked by xDSL, from the class (no constraint named).
"""

from __future__ import annotations

import pytest
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

from mllm_compiler.dialects import make_context

HEAD = """
func.func @f(%x: tensor<2x8xf32>, %n: tensor<2x8xi64>, %c: tensor<i1>, %u: !onnx.unknown)
    attributes {{onnx.opset = {{"" = {opset} : i64}}}} {{
  {op}
  func.return
}}
"""

F, N, C = "tensor<2x8xf32>", "tensor<2x8xi64>", "tensor<i1>"

BROKEN = [
    ("C1", 13, f"%y = onnx.Mish %x : ({F}) -> ({F})", "no such operator in opset 13"),
    (
        "C1",
        17,
        f"%y = onnx.Scatter %x, %n, %x : ({F}, {N}, {F}) -> ({F})",
        "deprecated in opset 17",
    ),
    ("", 17, f"%y = onnx.Gather %x : ({F}) -> ({F})", "Expected 2 operands, but got 1"),
    ("", 17, f"onnx.Relu %x : ({F}) -> ()", "Expected 1 result, but got 0"),
    (
        "",
        17,
        f"%y = onnx.If %c then_branch {{ onnx.yield }} : ({C}) -> ({F})",
        "Expected 2 regions",
    ),
    ("C2", 13, f"%y, %i = onnx.TopK %x : ({F}) -> ({F}, {N})", "at least 2 operands are needed"),
    ("C2", 6, f"%y = onnx.Clip %x, %x : ({F}, {F}) -> ({F})", "at most 1 operands are possible"),
    ("C2", 11, f"%y = onnx.Resize %x, _, %x : ({F}, {F}) -> ({F})", "'roi' must be there"),
    (
        "C3",
        17,
        f"%y = onnx.Concat %x, %x : ({F}, {F}) -> (tensor<4x8xf32>)",
        "'axis' must be there",
    ),
    ("C3", 17, f"%y = onnx.Softmax %x {{axis = 1.0 : f32}} : ({F}) -> ({F})", "of kind int, not"),
    ("C3", 17, f'%y = onnx.Cast %x {{to = "float"}} : ({F}) -> ({F})', "kind int, not string"),
    ("C3", 17, f"%y = onnx.Clip %x {{min = 0.0 : f32}} : ({F}) -> ({F})", "not of version 13"),
    ("C4", 17, f"%y = onnx.Softmax %n : ({N}) -> ({N})", "'input' cannot be tensor(int64)"),
    ("C4", 17, f"%y = onnx.Gather %x, %x : ({F}, {F}) -> ({F})", "'indices' cannot be"),
    ("C5", 17, f"%y = onnx.Add %x, %n : ({F}, {N}) -> ({F})", "'B' is tensor(int64), but T is"),
    ("C5", 17, f"%y = onnx.Relu %x : ({F}) -> ({N})", "'Y' is tensor(int64), but T is"),
]


@pytest.mark.parametrize(("constraint", "opset", "op", "words"), BROKEN)
def test_a_broken_operator_names_its_constraint(
    constraint: str, opset: int, op: str, words: str
) -> None:
    module = Parser(make_context(), HEAD.format(opset=opset, op=op)).parse_module()
    with pytest.raises(VerifyException) as caught:
        module.verify()
    assert words in str(caught.value)
    assert f"({constraint})" in str(caught.value) if constraint else True


KEPT = [
    (17, f"%y = onnx.Add %x, %u : ({F}, !onnx.unknown) -> ({F})"),
    (6, f"%y = onnx.Clip %x {{min = 0.0 : f32}} : ({F}) -> ({F})"),
    (
        17,
        f"%y, %z = onnx.Split %x {{axis = 1 : i64}} : ({F}) -> (tensor<2x4xf32>, tensor<2x4xf32>)",
    ),
    (17, f"%y = onnx.Concat %x, %x, %x {{axis = 0 : i64}} : ({F}, {F}, {F}) -> (tensor<6x8xf32>)"),
    (9, f"%y = onnx.Scatter %x, %n, %x : ({F}, {N}, {F}) -> ({F})"),
]


@pytest.mark.parametrize(("opset", "op"), KEPT)
def test_what_the_opset_allows_is_kept(opset: int, op: str) -> None:
    Parser(make_context(), HEAD.format(opset=opset, op=op)).parse_module().verify()
