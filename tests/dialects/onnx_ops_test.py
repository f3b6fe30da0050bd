"""Every operator class of the `onnx` dialect: forms that parse back, documentation."""

from __future__ import annotations

from io import StringIO

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import DYNAMIC_INDEX, Builtin, ModuleOp, TensorType, f32, i64
from xdsl.dialects.func import Func
from xdsl.dialects.test import Test, TestOp
from xdsl.ir import Attribute, Block, Operation, Region
from xdsl.parser import Parser
from xdsl.printer import Printer

from mllm_compiler.dialects.dims import DimsAttr
from mllm_compiler.dialects.onnx import Onnx, YieldOp, operators
from mllm_compiler.dialects.onnx_attributes import attribute_of
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.dialects.onnx_schemas import Formal, histories
from mllm_compiler.dialects.onnx_types import ELEMENTS, OptionalType, SequenceType, StringType

SAMPLES: dict[str, int | float | str | list[int] | list[float] | list[str]] = {
    "int": 3,
    "float": 0.1,
    "string": 'a "quoted" text',
    "ints": [1, -2],
    "floats": [0.5, 1e-7],
    "strings": ["a", "b"],
}


def context() -> Context:
    ctx = Context()
    for dialect in (Builtin, Func, Test, Onnx):
        ctx.load_dialect(dialect)
    return ctx


def type_for(formal: Formal, constraints: dict[str, frozenset[str]]) -> Attribute:
    spelling = min(constraints.get(formal.type, {formal.type}))
    if spelling.startswith("optional("):
        return OptionalType(TensorType(f32, [2]))
    if spelling.startswith("seq("):
        return SequenceType(TensorType(f32, [2]))
    element = ELEMENTS.get(spelling.removeprefix("tensor(").removesuffix(")"), StringType())
    return TensorType(element, [2, DYNAMIC_INDEX])


def sample(name: str, *, absent: bool) -> ModuleOp:
    """The operator with all its attributes; every second optional operand is left out."""
    schema, cls = histories()[name][-1], operators()[name]
    types = [type_for(f, schema.constraints) for f in schema.inputs]
    source = TestOp(result_types=types)
    drop = [absent and f.option == "optional" and i % 2 == 1 for i, f in enumerate(schema.inputs)]
    attributes = {
        a.name: attribute_of(SAMPLES[a.kind], a.kind)
        for a in schema.attributes.values()
        if a.kind in SAMPLES
    }
    regions = {
        name: Region(Block([YieldOp([])], arg_types=[TensorType(i64, [])]))
        for at, name in enumerate(cls.GRAPHS)
        if not (absent and at == 0 and not schema.attributes[name].required)
    }
    op = cls.make(
        [None if d else v for d, v in zip(drop, source.results, strict=True)],
        [type_for(f, schema.constraints) for f in schema.outputs],
        attributes,
        regions=regions,
    )
    return ModuleOp([source, op])


def generic(op: Operation) -> str:
    out = StringIO()
    Printer(out, print_generic_format=True).print_op(op)
    return out.getvalue()


@pytest.fixture(scope="module")
def ctx() -> Context:
    return context()


@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("name", sorted(histories()))
def test_both_forms_parse_back(name: str, absent: bool, ctx: Context) -> None:
    module = sample(name, absent=absent)
    for text in (str(module), generic(module)):
        parsed = Parser(ctx, text).parse_module()
        assert parsed.is_structurally_equivalent(module), text
        again = [o for o in parsed.walk() if isinstance(o, OnnxOp)]
        assert [v is None for v in again[0].inputs] == [
            v is None for o in module.walk() if isinstance(o, OnnxOp) for v in o.inputs
        ]


@pytest.mark.parametrize("name", sorted(histories()))
def test_every_operator_is_documented(name: str) -> None:
    assert len(operators()[name].__doc__ or "") > 10


def test_positions_are_those_of_the_standard(ctx: Context) -> None:
    module = Parser(
        ctx,
        """
        %x, %s = "test.op"() : () -> (tensor<1x3x4x4xf32>, tensor<4xi64>)
        %y = onnx.Resize %x, _, _, %s {mode = "nearest"}
             : (tensor<1x3x4x4xf32>, tensor<4xi64>) -> (tensor<1x3x8x8xf32>)
        """,
    ).parse_module()
    module.verify()
    resize = list(module.walk())[-1]
    assert isinstance(resize, OnnxOp)
    assert resize.input(1) is None
    assert resize.input(3) is not None
    assert resize.input(7) is None
    assert resize.attribute("mode") == "nearest"
    assert resize.attribute("cubic_coeff_a") == -0.75


def test_symbolic_dims_and_names_stay(ctx: Context) -> None:
    text = """
    func.func @f(%x: tensor<?x8xf32, #mllm.dims<"batch", "8">>)
        attributes {onnx.opset = {"" = 17}} {
      %y = onnx.Relu %x : (tensor<?x8xf32, #mllm.dims<"batch", "8">>) -> (tensor<?x8xf32>) loc("a")
      func.return
    }
    """
    ctx = context()
    ctx.load_attr_or_type(DimsAttr)
    module = Parser(ctx, text).parse_module()
    relu = next(o for o in module.walk() if isinstance(o, OnnxOp))
    assert relu.opset == 17
    assert relu.schema.since == 14
    assert str(relu.location) == 'loc("a")'
