"""Elementwise chains: one stage that runs a small postfix program over broadcast operands.

    %y = cpu.f32_elementwise %a, %b {program = "in0 in1 add silu 0.5 mul"} : (...) -> tensor<...>

Words push operands (`in0`), floats (`0.5`) and integers (`2`), or apply a function to what was
pushed; the last value left is the element of y.
"""

from __future__ import annotations

import math
import struct
from typing import Final, Literal

from xdsl.dialects.builtin import StringAttr, TensorType
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, prop_def, result_def, var_operand_def

from mllm_compiler.dialects.cpu.base import CpuOp, Param
from mllm_compiler.dialects.mllm.contract import all_agree, broadcast_dims, check
from mllm_compiler.dialects.types import shape_of

MAX_INPUTS: Final = 8
MAX_DEPTH: Final = 16

LOAD, CONST, ICONST, SELECT = 0, 1, 2, 3


def _numbered(names: str, first: int) -> dict[str, int]:
    return {name: first + i for i, name in enumerate(names.split())}


UNARY: Final = _numbered(
    "neg abs sign ceil floor round exp log sqrt rsqrt reciprocal sin cos tan tanh erf sigmoid"
    " relu gelu gelu_tanh silu softplus hard_sigmoid hard_swish not isnan isinf square asin"
    " acos atan sinh cosh asinh acosh atanh elu selu softsign mish bitnot",
    first=16,
)
"""Functions of one value, by the number that the runtime's header gives them."""

BINARY: Final = _numbered(
    "add sub mul div pow min max mod fmod and or xor eq ne lt le gt ge floordiv"
    " bitand bitor bitxor shl shr",
    first=96,
)
"""Functions of two values, by the number that the runtime's header gives them."""

ARITY: Final[dict[str, int]] = {
    **dict.fromkeys(UNARY, 1),
    **dict.fromkeys(BINARY, 2),
    "select": 3,
}

INTEGER: Final = frozenset(
    {"select", "neg", "abs", "sign", "relu", "not", "square", "bitnot", *BINARY} - {"pow"}
)
"""Functions that `i64_elementwise` has."""

Word = tuple[Literal["in", "const", "iconst", "op"], float | int | str]


def words(program: str) -> list[Word]:
    """Reads a program's text.

    Raises:
        ValueError: A word is neither an operand, a number nor a function.
    """
    return [_word(text) for text in program.split()]


def _word(text: str) -> Word:
    if text in ARITY:
        return ("op", text)
    if text.startswith("in") and text[2:].isdigit():
        return ("in", int(text[2:]))
    if text.lstrip("-").isdigit():
        return ("iconst", int(text))
    return ("const", float(text))


def depth(program: list[Word]) -> int | None:
    """The most values that the program holds at once; None where it does not leave exactly one."""
    height = deepest = 0
    for kind, value in program:
        height -= ARITY[str(value)] if kind == "op" else 0
        if height < 0:
            return None
        height += 1
        deepest = max(deepest, height)
    return deepest if height == 1 else None


def encode(program: list[Word]) -> list[int]:
    """The 64-bit words that the runtime reads, `op << 32 | arg`; a constant's value follows it."""
    codes: list[int] = []
    for kind, value in program:
        match kind:
            case "in":
                codes.append(LOAD << 32 | int(value))
            case "const":
                bits = struct.unpack("<q", struct.pack("<d", float(value)))[0]
                codes.extend((CONST << 32, bits))
            case "iconst":
                codes.extend((ICONST << 32, int(value)))
            case _:
                name = str(value)
                codes.append((UNARY | BINARY | {"select": SELECT})[name] << 32)
    return codes


def spell(program: list[Word]) -> str:
    """The text that `words` reads."""
    return " ".join(f"in{v}" if k == "in" else _spell_number(v) for k, v in program)


def _spell_number(value: float | int | str) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str) else repr(value)


class ElementwiseOp(CpuOp):
    """What both elementwise ops share: operands, program and the check of it."""

    def _encode(self, name: str, value: Attribute) -> list[Param]:
        assert isinstance(value, StringAttr)
        codes = encode(words(value.data))
        return [("i64", len(codes)), *(("i64", code) for code in codes)]

    def check_contract(self) -> None:
        """C1 to C3."""
        text = self.properties["program"]
        assert isinstance(text, StringAttr)
        program, inputs = words(text.data), len(self.operands)
        loads = [int(v) for k, v in program if k == "in"]
        fits = inputs <= MAX_INPUTS and all(i < inputs for i in loads)
        check(self, 1, fits, "at most 8 operands, each load names one")
        deepest = depth(program)
        fits = deepest is not None and deepest <= MAX_DEPTH
        check(self, 2, fits, "the program leaves one value and holds at most 16")
        shape = broadcast_dims(*(shape_of(v) for v in self.operands))
        fits = shape is not None and all_agree(shape, shape_of(self.results[0]))
        check(self, 3, fits, "y has the broadcast shape of the operands")


@irdl_op_definition
class F32ElementwiseOp(ElementwiseOp):
    """A postfix program in float32 arithmetic; operands and y may be float32 or i1.

    C1  at most 8 operands, and each load names one of them.
    C2  the program leaves exactly one value and never holds more than 16.
    C3  y has the broadcast shape of the operands.
    """

    name = "cpu.f32_elementwise"
    xs = var_operand_def(TensorType)
    program = prop_def(StringAttr)
    y = result_def(TensorType)


@irdl_op_definition
class I64ElementwiseOp(ElementwiseOp):
    """A postfix program in 64-bit integer arithmetic; operands and y may be integers or i1.

    C1  at most 8 operands, and each load names one of them.
    C2  the program leaves exactly one value and never holds more than 16.
    C3  y has the broadcast shape of the operands.
    C4  every function is one that integers have.
    """

    name = "cpu.i64_elementwise"
    xs = var_operand_def(TensorType)
    program = prop_def(StringAttr)
    y = result_def(TensorType)

    def check_contract(self) -> None:
        """C1 to C4."""
        super().check_contract()
        functions = {str(v) for k, v in words(self.program.data) if k == "op"}
        check(self, 4, functions <= INTEGER, "every function is one that integers have")
