"""One-stage programs with the result that NumPy gives: what every kernel is tested with.

`kernel_test.py` runs them over cffi; `write_cases.py` writes them to a file, which the C program
`run_cases` reads under the sanitizers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.runtime.program_writer import Array, Param, ProgramWriter, dtype_of, pack_panels

F32 = NDArray[np.float32]


@dataclass(frozen=True)
class Case:
    """Inputs in0.., one output y; `weights` are operands by position that the program holds."""

    name: str
    kernel: str
    operands: tuple[Array | None, ...]
    params: tuple[Param, ...]
    expected: Array
    weights: frozenset[int] = frozenset()
    rtol: float = 1e-5
    atol: float = 1e-6

    def inputs(self) -> dict[str, Array]:
        return {
            f"in{i}": value
            for i, value in enumerate(self.operands)
            if value is not None and i not in self.weights
        }

    def program(self) -> tuple[bytes, bytes]:
        writer = ProgramWriter()
        ids: list[int | None] = []
        for i, value in enumerate(self.operands):
            if value is None:
                ids.append(None)
            elif i in self.weights:
                ids.append(writer.weight(f"w{i}", value))
            else:
                ids.append(writer.io(f"in{i}", dtype_of(value), value.shape))
        y = writer.io("y", dtype_of(self.expected), self.expected.shape)
        writer.stage(self.kernel, ids, [y], self.params)
        bound = [i for n, i in enumerate(ids) if i is not None and n not in self.weights]
        writer.entry("main", inputs=bound, outputs=[y])
        return writer.finish()


def rng(*seed: object) -> np.random.Generator:
    return np.random.default_rng([ord(c) for c in repr(seed)])


def normal(*shape: int, seed: object = 0) -> F32:
    return rng(seed, shape).standard_normal(shape).astype(np.float32)


def f64(x: Array) -> NDArray[np.float64]:
    return x.astype(np.float64)


def f32(x: Array) -> F32:
    return x.astype(np.float32)


def erf(x: NDArray[np.float64]) -> NDArray[np.float64]:
    import math

    return np.vectorize(math.erf, otypes=[np.float64])(x)


ACTIVATIONS: list[Callable[[NDArray[np.float64]], NDArray[np.float64]]] = [
    lambda x: x,
    lambda x: np.maximum(x, 0),
    lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))),
    lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    lambda x: x / (1 + np.exp(-x)),
]


def linear() -> Iterator[Case]:
    shapes = [
        *((m, 33, 47, 0) for m in (1, 2, 3, 4, 5, 11, 12, 13, 97)),
        *((7, 16, 64, a) for a in range(5)),
        *((2, 16, 31, a) for a in range(5)),
        (1, 1, 1, 0), (1, 600, 70, 4), (25, 1030, 17, 0), (200, 64, 300, 2),
        (0, 8, 8, 0), (3, 0, 20, 0), (5, 7, 0, 0), (1, 576, 1536, 0),
    ]  # fmt: skip
    for i, (m, k, n, activation) in enumerate(shapes):
        x, w = normal(m, k, seed=i), normal(n, k, seed=i + 1)
        bias = normal(n, seed=2) if i % 2 else None
        y = f64(x) @ f64(w).T + (0 if bias is None else f64(bias))
        yield Case(
            f"linear-{m}x{k}x{n}-{activation}",
            "f32_linear",
            (x, pack_panels(w), bias),
            (n, activation),
            f32(ACTIVATIONS[activation](y)),
            frozenset({1}),
            atol=2e-6 * max(1.0, np.sqrt(k)),
        )
    x, w = normal(2, 3, 4, 20), normal(24, 20)
    yield Case("linear-batch", "f32_linear", (x, pack_panels(w), None), (24, 0),
               f32(f64(x) @ f64(w).T), frozenset({1}), atol=1e-5)  # fmt: skip


def matmul() -> Iterator[Case]:
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((3, 4), (4, 5)), ((1, 300), (300, 1)), ((100, 257), (257, 130)), ((2, 3, 7, 9), (9, 33)),
        ((2, 1, 5, 6), (3, 6, 20)), ((4, 0), (0, 3)), ((0, 4), (4, 3)), ((5, 2, 3), (5, 3, 16)),
    ]  # fmt: skip
    for i, (a_shape, b_shape) in enumerate(shapes):
        a, b = normal(*a_shape, seed=i), normal(*b_shape, seed=i + 1)
        y = f32(f64(a) @ f64(b))
        atol = 2e-6 * max(1.0, np.sqrt(a_shape[-1]))
        name = f"matmul-{'x'.join(map(str, a_shape))}-{'x'.join(map(str, b_shape))}"
        yield Case(name, "f32_matmul", (a, b), (0,), y, atol=atol)
        turned = np.ascontiguousarray(np.swapaxes(b, -1, -2))
        yield Case(f"{name}-t", "f32_matmul", (a, turned), (1,), y, atol=atol)


def norms() -> Iterator[Case]:
    for rows, n in ((1, 1), (3, 17), (5, 64), (2, 576), (0, 8), (40, 385)):
        x = normal(2, rows, n) * 3 + 1
        weight, bias, epsilon = normal(n, seed=1), normal(n, seed=2), 1e-5
        wide = f64(x)
        rms = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + epsilon) * weight
        yield Case(f"rms-{rows}x{n}", "f32_rms_norm", (x, weight), (epsilon,), f32(rms), atol=2e-6)
        centred = wide - wide.mean(-1, keepdims=True)
        layer = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)
        yield Case(f"layer-{rows}x{n}", "f32_layer_norm", (x, weight, bias), (epsilon,),
                   f32(layer * weight + bias), atol=1e-5)  # fmt: skip
        yield Case(f"layer-plain-{rows}x{n}", "f32_layer_norm", (x, None, None), (epsilon,),
                   f32(layer), atol=1e-5)  # fmt: skip


def softmax_of(x: Array, axis: int) -> NDArray[np.float64]:
    wide = f64(x)
    e = np.exp(wide - wide.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def softmax() -> Iterator[Case]:
    for shape in ((1,), (5, 33), (3, 4, 70), (2, 300, 3), (2, 0), (1, 1000)):
        for axis in range(len(shape)):
            x = normal(*shape) * 5
            y = f32(softmax_of(x, axis)) if x.size else x
            yield Case(f"softmax-{shape}-{axis}", "f32_softmax", (x,), (axis,), y)
    x = np.float32([[1, -np.inf, 2], [-np.inf, 3, -1e30]])
    wrong = normal(4, 150)
    wrong[1, 3], wrong[2, 149] = np.nan, np.nan
    yield Case("softmax-nan", "f32_softmax", (wrong,), (1,), f32(softmax_of(wrong, 1)))
    largest = f32(wrong.max(1))
    yield Case("reduce-nan", "f32_reduce", (wrong,), (2, [1]), largest)
    yield Case("softmax-inf", "f32_softmax", (x,), (1,), f32(softmax_of(x, 1)))


REDUCTIONS: list[Callable[..., NDArray[np.float64]]] = [
    np.sum,
    np.mean,
    np.max,
    np.min,
    np.prod,
    lambda x, axis: np.abs(x).sum(axis),
    lambda x, axis: np.sqrt((x**2).sum(axis)),
    lambda x, axis: (x**2).sum(axis),
    lambda x, axis: np.log(x.sum(axis)),
    lambda x, axis: np.log(np.exp(x).sum(axis)),
]


def reduce() -> Iterator[Case]:
    for shape, axes in (
        ((7,), (0,)), ((3, 5, 2), (1,)), ((3, 5, 2), (0, 2)), ((4, 33), (0,)), ((4, 2000), (1,)),
        ((2, 3, 4, 5), (1, 2)), ((2, 3), ()), ((6, 4), (0, 1)),
    ):  # fmt: skip
        for kind, function in enumerate(REDUCTIONS):
            x = np.abs(normal(*shape)) * 0.5 + 0.3 if kind in (4, 8) else normal(*shape)
            y = f32(function(f64(x), axis=axes))
            yield Case(f"reduce-{shape}-{axes}-{kind}", "f32_reduce", (x,), (kind, axes), y)
    empty = np.zeros((3, 0), np.float32)
    yield Case("reduce-empty", "f32_reduce", (empty,), (0, [1]), np.zeros(3, np.float32))


def rope_of(x: F32, positions: Array, inv_freq: F32, heads: int, interleaved: bool) -> F32:
    batch, tokens, width = x.shape
    y = f64(x).reshape(batch, tokens, heads, width // heads).copy()
    half = len(inv_freq)
    angle = f64(positions)[..., None, None] * f64(inv_freq)
    first = np.arange(half) * (2 if interleaved else 1)
    second = first + (1 if interleaved else half)
    a, b = y[..., first].copy(), y[..., second].copy()
    y[..., first] = a * np.cos(angle) - b * np.sin(angle)
    y[..., second] = b * np.cos(angle) + a * np.sin(angle)
    return f32(y.reshape(x.shape))


def rope() -> Iterator[Case]:
    for batch, tokens, heads, dim, half in (
        (1, 1, 9, 64, 32), (2, 7, 3, 16, 8), (1, 5, 2, 20, 6), (1, 0, 2, 8, 4), (1, 3, 1, 8, 0),
    ):  # fmt: skip
        for interleaved in (0, 1):
            x = normal(batch, tokens, heads * dim)
            positions = rng(tokens).integers(0, 2048, (batch, tokens))
            inv_freq = f32(10000.0 ** (-np.arange(half) / max(half, 1)))
            y = rope_of(x, positions, inv_freq, heads, bool(interleaved))
            yield Case(f"rope-{batch}x{tokens}x{heads}x{dim}-{half}-{interleaved}", "f32_rope",
                       (x, positions, inv_freq), (heads, interleaved), y, atol=2e-6)  # fmt: skip


def cumsum() -> Iterator[Case]:
    for dtype in ("f4", "f8", "i8", "i4"):
        for shape, axis in (((7,), 0), ((3, 5, 2), 1), ((2, 300), 1), ((2, 0, 3), 1)):
            for exclusive, reverse in ((0, 0), (1, 0), (0, 1), (1, 1)):
                x = (normal(*shape) * 9).astype(dtype)
                wide = np.flip(x, axis) if reverse else x
                y = np.cumsum(wide, axis, dtype=x.dtype) - (wide if exclusive else 0)
                y = np.ascontiguousarray(np.flip(y, axis) if reverse else y)
                name = f"cumsum-{dtype}-{shape}-{exclusive}{reverse}"
                params = (axis, exclusive, reverse)
                yield Case(name, "cumsum", (x,), params, y.astype(dtype), atol=1e-4)


@dataclass(frozen=True)
class ScanCase(Case):
    """The states behind the last token lie in the arena; or, where `last`, what was read does."""

    last: bool = False

    def program(self) -> tuple[bytes, bytes]:
        writer = ProgramWriter()
        ids = [writer.io(f"in{i}", dtype_of(v), v.shape) for i, v in enumerate(self.operands)]  # type: ignore[arg-type, union-attr]
        y = writer.io("y", "f32", self.expected.shape)
        other = writer.arena_tensor("other", "f32", self.operands[0 if self.last else 5].shape)  # type: ignore[union-attr]
        writer.stage(self.kernel, ids, [other, y] if self.last else [y, other], [])
        writer.entry("main", inputs=ids, outputs=[y])
        return writer.finish()


def scan() -> Iterator[Case]:
    for batch, tokens, channels, states in (
        (1, 1, 1, 1), (2, 7, 5, 16), (1, 300, 3, 17), (1, 0, 4, 8), (3, 2, 70, 4), (1, 3, 0, 4),
    ):  # fmt: skip
        x = normal(batch, tokens, channels)
        step = np.abs(normal(batch, tokens, channels, seed=1))
        a = -np.abs(normal(channels, states, seed=2))
        b, c = (normal(batch, tokens, states, seed=s) for s in (3, 4))
        state = normal(batch, channels, states, seed=5)
        h, y = f64(state), np.zeros(x.shape)
        for t in range(tokens):
            width = f64(step[:, t, :, None])
            h = np.exp(width * a) * h + width * x[:, t, :, None] * b[:, t, None]
            y[:, t] = (h * c[:, t, None]).sum(-1)
        operands = (x, step, a, b, c, state)
        for last, expected in ((False, f32(y)), (True, f32(h))):
            name = f"scan-{batch}x{tokens}x{channels}x{states}-{last:d}"
            yield ScanCase(name, "f32_selective_scan", operands, (), expected, atol=1e-5, last=last)


@functools.cache
def all_cases() -> Sequence[Case]:
    from tests.runtime import (
        cases_attention,
        cases_buckets,
        cases_codes,
        cases_data,
        cases_elementwise,
        cases_window,
    )

    makers = (
        cases_buckets.buckets,
        *(linear, matmul, norms, softmax, reduce, rope, cumsum, scan),
        *(
            cases_attention.attention,
            cases_attention.paged,
            *cases_data.MAKERS,
            *cases_elementwise.MAKERS,
        ),
        *cases_codes.MAKERS,
        *cases_window.MAKERS,
    )
    return [case for make in makers for case in make()]
