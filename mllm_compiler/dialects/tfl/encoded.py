"""Ops of TFLite on codes: which have such a form, what their encodings must be.

The encoding of a result stands on the op that makes it, as `scale` and `zero_point`: real = scale
(code - zero_point). What is said here is what LiteRT 2.3.0 does, operator by operator
(tests/vendor/tflite_codes_test.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, StringAttr, f32, i8, i16
from xdsl.ir import Attribute, Operation, SSAValue

from mllm_compiler.dialects.mllm.contract import check
from mllm_compiler.dialects.types import element_of

Code = tuple[float, int]
"""Scale and zero point."""

BITS: Final[dict[Attribute, int]] = {i8: 8, i16: 16}
"""Element types of codes of values."""

JOINS: Final = frozenset({"concatenation", "maximum", "minimum"})
"""Operators whose operands and result have one encoding."""

MOVES: Final = frozenset(
    {
        "average_pool_2d",
        "broadcast_to",
        "gather",
        "max_pool_2d",
        "padv2",
        "reduce_max",
        "reduce_min",
        "reshape",
        "split",
        "strided_slice",
        "transpose",
    }
)
"""Operators whose result has the encoding of the operand."""

BOTH: Final = frozenset(
    {
        "add",
        "batch_matmul",
        "conv_2d",
        "depthwise_conv_2d",
        "exp",
        "fully_connected",
        "gelu",
        "logistic",
        "mean",
        "mul",
        "quantize",
        "softmax",
        "sub",
        "tanh",
    }
)

FORMS: Final = {
    8: BOTH | JOINS | MOVES | {"sum", "log", "relu", "rsqrt"},
    16: BOTH | JOINS | MOVES,
}
"""Operators that compute on codes of so many bits.

RSQRT, LOG and RELU of 16 bits have kernels too: of 512 pieces of a line, which miss a root by up
to 19,613 codes. DIV of codes fails where a divisor is 0.
"""

FIXED: Final[dict[int, dict[str, Code]]] = {
    8: {"softmax": (1 / 256, -128), "logistic": (1 / 256, -128), "tanh": (1 / 128, 0)},
    16: {"softmax": (1 / 32768, 0), "logistic": (1 / 32768, 0), "tanh": (1 / 32768, 0)},
}
"""Encodings that TFLite fixes."""

PER_AXIS: Final = frozenset({"fully_connected", "conv_2d", "depthwise_conv_2d"})
"""Operators whose weights have a scale for each output channel."""


def operator(op: Operation) -> str:
    """The name of an operator in the tables."""
    return op.name.removeprefix("tfl.")


def encoding(value: SSAValue) -> Code | None:
    """What the codes of a value mean; None of reals, whole numbers and codes of rows."""
    maker = value.owner
    if not isinstance(maker, Operation):
        return None
    scale, zero = maker.properties.get("scale"), maker.properties.get("zero_point")
    if isinstance(scale, FloatAttr) and isinstance(zero, IntegerAttr):
        return float(np.float32(scale.value.data)), zero.value.data
    return None


def moved(op: Operation) -> Sequence[SSAValue]:
    """The operands that have the encoding of the result."""
    name = operator(op)
    if name in JOINS:
        return op.operands
    if name == "padv2":
        return (op.operands[0], op.operands[2])
    if name == "split":
        return op.operands[1:]
    return op.operands[:1] if name in MOVES else ()


def check_encoding(op: Operation) -> None:
    """Checks what an op on codes must be like; it cites no number where every op must be so."""
    name, given = operator(op), None
    for result in op.results:
        given = encoding(result)
    bits = BITS.get(element_of(op.results[0])) if op.results else None
    if given is None or name == "pseudo_qconst":
        return
    scale, zero = given
    check(op, 0, bits is not None and scale > 0, "codes are i8 or i16, their scale is above 0")
    assert bits is not None
    check(op, 0, name in FORMS[bits], f"TFLite computes it on codes of {bits} bits")
    check(op, 0, bits == 8 or zero == 0, "codes of 16 bits have the zero point 0")
    check(op, 0, -128 <= zero <= 127, "a zero point is a code")
    fixed = FIXED[bits].get(name)
    check(op, 0, fixed is None or given == fixed, f"its codes mean {fixed}, as TFLite fixes")
    check(op, 0, all(encoding(v) == given for v in moved(op)), "one encoding")
    ending = op.properties.get("fused_activation_function")
    plain = not isinstance(ending, StringAttr) or ending.data == "NONE"
    check(op, 0, plain, "it ends with no activation")
    if name == "quantize":
        check(op, 0, element_of(op.operands[0]) == f32, "it makes codes of reals")
        return
    inputs = op.operands[:1] if name in PER_AXIS else _values(op)
    coded = all(encoding(v) is not None and element_of(v) in BITS for v in inputs)
    check(op, 0, coded, "it reads codes")
    if name == "batch_matmul" and bits == 8:
        second = encoding(op.operands[1])
        check(op, 0, second is not None and second[1] == 0, "b has the zero point 0")


def _values(op: Operation) -> list[SSAValue]:
    """The operands that are no whole numbers, such as axes and shapes."""
    return [v for v in op.operands if element_of(v) in BITS or element_of(v) == f32]
