"""Elementwise programs: every function, broadcasting and dtypes, against NumPy."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.runtime.cases import Case, erf, f32, f64, normal, rng
from tests.runtime.program_writer import Array

HEADER = Path(__file__).resolve().parents[2] / "runtime_stub/include/mllm_program.h"
OPS = {
    name.lower(): int(number)
    for name, number in re.findall(r"MLLM_EW_(\w+) = (\d+)", HEADER.read_text(encoding="utf-8"))
}

Function = Callable[..., NDArray[Any]]

UNARY: dict[str, Function] = {
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "ceil": np.ceil,
    "floor": np.floor,
    "round": np.rint,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "tanh": np.tanh,
    "erf": erf,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "softplus": lambda x: np.logaddexp(x, 0),
    "hard_sigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "hard_swish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "not": lambda x: x == 0,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "square": np.square,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "mish": lambda x: x * np.tanh(np.logaddexp(x, 0)),
}
BINARY: dict[str, Function] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "pow": np.power,
    "min": np.minimum,
    "max": np.maximum,
    "mod": np.mod,
    "fmod": np.fmod,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "floordiv": np.floor_divide,
}
INTEGER: dict[str, Function] = {
    **{k: v for k, v in BINARY.items() if k not in ("pow", "div")},
    "div": lambda a, b: np.trunc(a / b),
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
}
DOMAINS = {
    "log": (1e-30, 50), "sqrt": (0, 50), "rsqrt": (1e-3, 50), "asin": (-1, 1), "acos": (-1, 1),
    "atanh": (-0.999, 0.999), "acosh": (1, 50), "exp": (-80, 80), "tan": (-1.4, 1.4),
    "sinh": (-20, 20), "cosh": (-20, 20), "reciprocal": (0.1, 9),
}  # fmt: skip


def words(program: str) -> list[int]:
    """The text of a program (`in0 2.5 mul exp`) as words."""
    made: list[int] = []
    for token in program.split():
        if token.startswith("in") and token[2:].isdigit():
            made.append(int(token[2:]))
        elif token in OPS:
            made.append(OPS[token] << 32)
        elif re.fullmatch(r"-?\d+", token):
            made += [OPS["iconst"] << 32, int(token)]
        else:
            made += [OPS["const"] << 32, struct.unpack("<q", struct.pack("<d", float(token)))[0]]
    return made


def unary() -> Iterator[Case]:
    for name, function in UNARY.items():
        low, high = DOMAINS.get(name, (-12, 12))
        x = f32(rng(name).uniform(low, high, (3, 401)))
        if name in ("tanh", "erf", "exp", "gelu", "softplus", "mish", "elu"):
            x[0] = np.linspace(-1e-3, 1e-3, 401)
        if name in ("not", "sign", "isnan", "isinf"):
            x[1, :50] = 0
            x[1, 50:60] = np.inf
        y = f32(function(f64(x)))
        yield Case(f"unary-{name}", "f32_elementwise", (x,), (words(f"in0 {name}"),), y, rtol=2e-6,
                   atol=1e-30 if name in ("exp", "tanh", "erf") else 1e-6)  # fmt: skip


def special() -> Iterator[Case]:
    x = np.float32(
        [0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 88.7, 89, -87, -104, -110, 1e30]
    )
    for name in ("exp", "tanh", "erf", "sigmoid", "relu", "neg", "sqrt", "abs", "silu", "gelu"):
        with np.errstate(all="ignore"):
            y = f32(UNARY[name](f64(x)))
        if name in ("silu", "gelu"):
            y[3] = np.nan  # -inf * 0
        yield Case(f"special-{name}", "f32_elementwise", (x,), (words(f"in0 {name}"),), y,
                   rtol=5e-6, atol=1e-43)  # fmt: skip
    with np.errstate(all="ignore"):
        logs = f32(np.log(f64(x)))
    yield Case("special-log", "f32_elementwise", (x,), (words("in0 log"),), logs, rtol=2e-6)


def binary() -> Iterator[Case]:
    for name, function in BINARY.items():
        a, b = normal(7, 1, 33) * 3, normal(5, 33, seed=1) * 3
        if name in ("and", "or", "xor", "eq", "ne", "le", "ge"):
            a, b = np.rint(a), np.rint(b)
        if name == "pow":
            a = np.abs(a) + np.float32(0.1)
        y = f32(function(f64(a), f64(b)))
        program = (words(f"in0 in1 {name}"),)
        yield Case(f"binary-{name}", "f32_elementwise", (a, b), program, y, rtol=3e-6)
        if y.dtype != f32(y).dtype or set(np.unique(y)) <= {0.0, 1.0}:
            yield Case(f"binary-{name}-bool", "f32_elementwise", (a, b), program, y != 0)


SHAPES: list[tuple[tuple[int, ...], ...]] = [
    ((5,), (5,)), ((1,), (3, 4)), ((), (6,)), ((2, 3, 4), (3, 1)), ((2, 1, 4), (1, 3, 1)),
    ((1000, 7), (1000, 1)), ((3, 700), (700,)), ((0, 3), (1, 3)),
    ((2, 1, 2, 1, 2, 1, 2, 1), (2,) * 8),
    ((4, 1, 513), (1, 2, 513)), ((1, 1), (1, 1)), ((9000,), (1,)),
]  # fmt: skip


def shapes() -> Iterator[Case]:
    for a_shape, b_shape in SHAPES:
        a, b = np.asarray(normal(*a_shape)), np.asarray(normal(*b_shape, seed=1))
        program = words("in0 in1 mul in0 2.5 sub add in1 max")
        y = np.asarray(f32(np.maximum(f64(a) * b + (f64(a) - 2.5), b)))
        yield Case(f"shapes-{a_shape}-{b_shape}", "f32_elementwise", (a, b), (program,), y)


def mixed() -> Iterator[Case]:
    x, flags = normal(4, 50), rng("flags").random((4, 1)) > 0.5
    for dtype in ("?", "u1", "i8", "i4", "f8", "i1", "u2"):
        condition: Array = flags.astype(dtype)
        y = np.where(condition != 0, x, np.float32(-1))
        yield Case(f"select-{dtype}", "f32_elementwise", (condition, x),
                   (words("in0 in1 -1.0 select"),), y)  # fmt: skip
    yield Case("load-only", "f32_elementwise", (x,), (words("in0"),), x)
    yield Case("constant", "f32_elementwise", (), (words("1.5"),), np.full((3, 4), 1.5, np.float32))
    a = np.rint(x * 4)
    yield Case("to-i64", "f32_elementwise", (a,), (words("in0 2 mul"),), (a * 2).astype(np.int64))
    silu = f64(x) / (1 + np.exp(-f64(x))) * f64(x[::-1])
    yield Case("gated", "f32_elementwise", (x, np.ascontiguousarray(x[::-1])),
               (words("in0 silu in1 mul"),), f32(silu))  # fmt: skip
    eight = tuple(normal(6, 1, seed=i) for i in range(8))
    total = f32(sum(f64(v) for v in eight))
    program = words("in0 in1 in2 in3 in4 in5 in6 in7 " + "add " * 7)
    yield Case("eight", "f32_elementwise", eight, (program,), total)


def integers() -> Iterator[Case]:
    big = 1 << 60
    for name, function in INTEGER.items():
        a, b = rng("a").integers(-50, 50, (9, 1, 20)), rng("b").integers(-9, 9, (3, 20))
        b[b == 0] = 1
        if name in ("add", "sub", "min", "max", "eq", "lt"):
            a = a + big
        y = np.asarray(function(a, b))
        program = (words(f"in0 in1 {name}"),)
        yield Case(f"i64-{name}", "i64_elementwise", (a, b), program, y.astype(np.int64), rtol=0,
                   atol=0)  # fmt: skip
    x = rng("x").integers(-5, 5, 300)
    for name in ("neg", "abs", "sign", "relu", "not", "square", "bitnot"):
        y = ~x if name == "bitnot" else UNARY[name](x)
        yield Case(f"i64-{name}", "i64_elementwise", (x,), (words(f"in0 {name}"),),
                   y.astype(np.int64), rtol=0, atol=0)  # fmt: skip
    for dtype in ("i4", "u1", "?", "f4", "i2"):
        y = np.where(x > 1, 3, 0).astype(dtype)
        yield Case(f"i64-to-{dtype}", "i64_elementwise", (x,), (words("in0 1 gt 3 0 select"),), y,
                   rtol=0, atol=0)  # fmt: skip


MAKERS = (unary, special, binary, shapes, mixed, integers)
