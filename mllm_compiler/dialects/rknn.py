"""The `rknn` dialect: the operators of ONNX that Rockchip's toolkit takes as its own.

    %y = rknn.MatMul %x, %w : (tensor<1x4x8xf32>, tensor<8x6xf32>) -> (tensor<1x4x6xf32>)

The toolkit reads ONNX up to opset 19, so an op here is the standard's operator of that opset, under
its own name, and means the same; what the dialect adds are the toolkit's rules. Constants are
`mllm.weight` and `mllm.constant`.

Every op holds the constraints C1 to C5 of `onnx_verify`, and:

C6  every shape is static: the toolkit compiles one graph for each choice of sizes.
C7  element types are f32, i64, i32 and i1: the toolkit chooses those of the chip.
C8  operands that decide a result's shape, such as axes, bounds and shapes, are constants.
C9  results have the types that the standard infers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final, cast

from onnx import TensorProto, helper, numpy_helper, shape_inference
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Dialect, Operation, ParametrizedAttribute, SSAValue
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from mllm_compiler.dialects.mllm.constants import ConstantOp, array_of
from mllm_compiler.dialects.onnx import class_of
from mllm_compiler.dialects.onnx_attributes import value_of
from mllm_compiler.dialects.onnx_op import OnnxOp
from mllm_compiler.dialects.onnx_schemas import schema_of
from mllm_compiler.dialects.onnx_verify import verify_against
from mllm_compiler.dialects.types import element_of, extents, ranked, shape_of

OPSET: Final = 19
"""The newest opset that the toolkit reads."""

SHAPED_BY: Final[dict[str, tuple[int, ...]]] = {
    "Expand": (1,),
    "Pad": (1, 2, 3),
    "ReduceMax": (1,),
    "ReduceMean": (1,),
    "ReduceMin": (1,),
    "ReduceProd": (1,),
    "ReduceSum": (1,),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
}
"""The operands of C8 by position."""

OPERATORS: Final = (
    *("Abs", "Add", "And", "AveragePool", "Cast", "Ceil", "Concat", "Conv", "Cos", "CumSum"),
    *("Div", "Equal", "Erf", "Exp", "Expand", "Floor", "Gather", "Greater", "GreaterOrEqual"),
    *("HardSwish", "LayerNormalization", "Less", "LessOrEqual", "Log", "MatMul", "Max", "MaxPool"),
    *("Min", "Mul", "Neg", "Not", "Or", "Pad", "Pow", "ReduceMax", "ReduceMean", "ReduceMin"),
    *("ReduceProd", "ReduceSum", "Relu", "Reshape", "Round", "Sigmoid", "Sign", "Sin"),
    *("Slice", "Softmax", "Split", "Sqrt", "Sub", "Tanh", "Transpose", "Where"),
)
"""The operators, by their names in the standard."""

_NUMBERS: Final[dict[str, int]] = {
    "f32": TensorProto.FLOAT,
    "i64": TensorProto.INT64,
    "i32": TensorProto.INT32,
    "i1": TensorProto.BOOL,
}
"""The element types of C7, and ONNX's numbers of them."""


class RknnOp(OnnxOp):
    """Base of the ops: an operator of the standard under the toolkit's rules."""

    @property
    def opset(self) -> int:
        """`OPSET`, wherever the op stands."""
        return OPSET

    def verify_(self) -> None:
        """Checks the constraints C1 to C9."""
        verify_against(self, self.schema)
        for value in (*self.operands, *self.results):
            if ranked(value) is None or any(d.as_int() is None for d in shape_of(value)):
                raise self._broken("C6", "every shape is static")
            if str(element_of(value)) not in _NUMBERS:
                raise self._broken("C7", f"no element is {element_of(value)}")
        for at in SHAPED_BY.get(self.OPERATOR, ()):
            value = self.input(at)
            if value is not None and not isinstance(value.owner, ConstantOp):
                raise self._broken("C8", f"operand {at} is a constant")
        for result, inferred in zip(self.results, self._inferred(), strict=True):
            if (_number(result), extents(result)) != inferred:
                raise self._broken("C9", f"the result is {_spelled(*inferred)}")

    def _inferred(self) -> list[tuple[int, tuple[int, ...]]]:
        """The element type and extents of each result, as the standard infers them."""
        names = ["" if v is None else f"i{at}" for at, v in enumerate(self.inputs)]
        outputs = [f"o{at}" for at in range(len(self.results))]
        given = {n: value_of(v) for n, v in self.properties.items() if n in self.ATTRIBUTES}
        node = helper.make_node(self.OPERATOR, names, outputs, **cast("dict[str, Any]", given))
        inputs = [(n, v) for n, v in zip(names, self.inputs, strict=True) if v is not None]
        graph = helper.make_graph(
            [node],
            "g",
            [helper.make_tensor_value_info(n, _number(v), extents(v)) for n, v in inputs],
            [helper.make_empty_tensor_value_info(name) for name in outputs],
            [
                numpy_helper.from_array(array_of(v.owner.value), n)
                for n, v in inputs
                if isinstance(v.owner, ConstantOp)
            ],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        try:
            inferred = shape_inference.infer_shapes(model, strict_mode=True)
        except shape_inference.InferenceError as fault:
            raise self._broken("C9", str(fault).strip().splitlines()[-1]) from fault
        types = [o.type.tensor_type for o in inferred.graph.output]
        return [(t.elem_type, tuple(d.dim_value for d in t.shape.dim)) for t in types]

    def _broken(self, constraint: str, message: str) -> VerifyException:
        return VerifyException(f"'{self.name}' {constraint}: {message}")


@irdl_attr_definition
class BuildAttr(ParametrizedAttribute):
    """What the toolkit is asked for: `#rknn.build<"rk3576", "w4a16", "group32">`.

    The SoC, how weights and values are quantised (`f16` where they are not), and which weights
    share a scale: those of a `channel`, or a group of some.
    """

    name = "rknn.build"
    soc: StringAttr
    form: StringAttr
    method: StringAttr

    @classmethod
    def of(cls, soc: str, form: str, method: str) -> BuildAttr:
        """The attribute of plain words."""
        return cls(StringAttr(soc), StringAttr(form), StringAttr(method))

    def print_parameters(self, printer: Printer) -> None:
        """Writes the words between angle brackets."""
        with printer.in_angle_brackets():
            words = (self.soc, self.form, self.method)
            printer.print_list(words, lambda word: printer.print_string_literal(word.data))

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        """Reads the words between angle brackets."""
        words = parser.parse_comma_separated_list(parser.Delimiter.ANGLE, parser.parse_str_literal)
        return [StringAttr(word) for word in words]


@cache
def operators() -> dict[str, type[RknnOp]]:
    """Every operator class by its name in the standard."""
    found: dict[str, type[RknnOp]] = {}
    for name in OPERATORS:
        schema = schema_of(f"onnx.{name}", OPSET)
        assert schema is not None
        found[name] = cast("type[RknnOp]", class_of(f"rknn.{name}", (schema,), RknnOp))
    return found


class RknnDialect(Dialect):
    """The dialect; its operator classes are made when they are first asked for."""

    def __init__(self) -> None:
        super().__init__("rknn", [], [BuildAttr])

    @property
    def operations(self) -> Iterator[type[Operation]]:
        """Every operator class."""
        yield from operators().values()


Rknn = RknnDialect()
"""The dialect, to load or register."""


def _number(value: SSAValue) -> int:
    return _NUMBERS[str(element_of(value))]


def _spelled(number: int, dims: tuple[int, ...]) -> str:
    words = {n: word for word, n in _NUMBERS.items()}
    return "x".join([*map(str, dims), words.get(number, str(number))])
