"""Meaning of the cpu dialect's elementwise programs: a stack machine over whole arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mllm_compiler.dialects.cpu import F32ElementwiseOp, I64ElementwiseOp
from mllm_compiler.dialects.cpu.elementwise import ARITY, words
from mllm_compiler.dialects.mllm import BinaryKind, UnaryKind
from mllm_compiler.dialects.types import dtype_of, element_of, tensor_type
from mllm_compiler.reference.entry import one
from mllm_compiler.reference.executor import Array, Frame, Meaning
from mllm_compiler.reference.mllm_elementwise import BINARY, apply_unary, divide

SELU_ALPHA, SELU_GAMMA = 1.6732632423543772, 1.0507009873554805

ONE: dict[str, Callable[[Array], Array]] = {
    "not": lambda x: np.equal(x, 0),
    "square": lambda x: x * x,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "selu": lambda x: SELU_GAMMA * np.where(x > 0, x, SELU_ALPHA * np.expm1(x)),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "bitnot": np.invert,
}
"""Functions of one value that mllm's unary kinds do not have, or not with this meaning."""

TWO: dict[str, Callable[[Array, Array], Array]] = {
    "div": divide,
    "mod": np.mod,
    "fmod": np.fmod,
    "floordiv": np.floor_divide,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
}
"""Functions of two values that mllm's binary kinds do not have, or not with this meaning."""


def apply(name: str, operands: Sequence[Array]) -> Array:
    """A function of a program's words; truth is "not zero"."""
    match operands:
        case [x] if name in ONE:
            return np.asarray(ONE[name](x))
        case [x]:
            return apply_unary(UnaryKind(name), x)
        case [a, b]:
            return np.asarray(TWO[name](a, b) if name in TWO else BINARY[BinaryKind(name)](a, b))
        case _:
            return np.where(operands[0] != 0, operands[1], operands[2])


def run_program(program: str, operands: Sequence[Array], dtype: type[np.generic]) -> Array:
    """The value that a program leaves, computed in `dtype` at every step."""
    stack: list[Array] = []
    for kind, value in words(program):
        if kind == "in":
            stack.append(operands[int(value)].astype(dtype))
        elif kind == "op":
            count = ARITY[str(value)]
            taken = [stack.pop() for _ in range(count)][::-1]
            stack.append(apply(str(value), taken).astype(dtype))
        else:
            stack.append(np.asarray(value).astype(dtype))
    return stack[0]


def _compute(
    op: F32ElementwiseOp | I64ElementwiseOp,
    operands: Sequence[Array],
    frame: Frame,
    dtype: type[np.generic],
) -> Array:
    with np.errstate(all="ignore"):
        y = run_program(op.program.data, operands, dtype).astype(dtype_of(element_of(op.y)))
    return np.ascontiguousarray(np.broadcast_to(y, frame.shape(tensor_type(op.y))))


MEANINGS: dict[str, Meaning] = dict(
    [
        one(F32ElementwiseOp, lambda op, x, frame: _compute(op, x, frame, np.float32)),
        one(I64ElementwiseOp, lambda op, x, frame: _compute(op, x, frame, np.int64)),
    ]
)
"""Op name to meaning."""
