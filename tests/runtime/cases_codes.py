"""Kernels of codes against NumPy in integers and doubles: every case is equal bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tests.runtime.cases import ACTIVATIONS, Case, f32, normal, rng
from tests.runtime.cases_data import exact
from tests.runtime.program_writer import Array, ProgramWriter, dtype_of, pack_panels

FORMATS = ("i8", "ui8", "i4", "ui4", "i2", "ui2")
"""In the order of the runtime's numbers."""


def limits(code: str) -> tuple[int, int]:
    count = 1 << int(code.lstrip("ui"))
    return (0, count) if code.startswith("u") else (-count // 2, count // 2)


def codes_of(code: str, *shape: int, seed: object = 0) -> Array:
    """Codes of a format, extremes among them, a byte each."""
    low, high = limits(code)
    made = rng(code, seed, shape).integers(low, high, shape)
    if made.size:
        made.reshape(-1)[0], made.reshape(-1)[-1] = low, high - 1
    return made.astype(np.uint8 if low == 0 else np.int8)


def shared(codes: Array, code: str) -> Array:
    """Codes along the first axis as the bytes that they fill, low bits first."""
    bits = int(code.lstrip("ui"))
    if bits == 8:
        return codes
    each, wide = 8 // bits, codes.astype(np.int64) & ((1 << bits) - 1)
    bytes_ = np.zeros((-(-len(codes) // each), *codes.shape[1:]), np.uint8)
    for at, row in enumerate(wide):
        bytes_[at // each] |= (row << at % each * bits).astype(np.uint8)
    return bytes_


def code_panels(codes: Array, code: str) -> Array:
    """Panels of [N, K] codes, those of less than a byte packed along K."""
    return pack_panels(np.ascontiguousarray(shared(codes.T, code).T))


def code_quads(codes: Array, code: str) -> Array:
    """[N, K] codes as [ceil(N / 16), groups, 16, 4] bytes: see `quads16` of cpu.weight."""
    bits = int(code.lstrip("ui"))
    each, (n, k) = 8 // bits, codes.shape
    groups = -(-k // (4 * each))
    made = np.zeros((-(-n // 16), groups, 16, 4), np.uint8)
    for row, column in np.ndindex(n, k):
        group, within = divmod(column, 4 * each)
        part = int(codes[row, column]) & ((1 << bits) - 1)
        made[row // 16, group, row % 16, within % 4] |= part << within // 4 * bits
    return made.view(np.int8) if code == "i8" else made


def spread(parameter: Array, k: int, size: int) -> Array:
    """[..., blocks] as [..., K]."""
    return np.repeat(parameter, size or max(k, 1), -1)[..., :k]


def quantised() -> Iterator[Case]:
    """Rows of codes by codes: sums of each block as integers, then in doubles, in order."""
    for i, (m, k, n, size) in enumerate((
        (1, 33, 47, 0), (1, 64, 16, 32), (2, 96, 40, 32), (3, 40, 17, 16), (5, 7, 1, 3),
        (12, 70, 33, 0), (13, 300, 50, 128), (40, 1100, 20, 0), (25, 2100, 16, 700),
        (3, 600, 1100, 0), (0, 8, 8, 0), (2, 0, 20, 0), (4, 130, 18, 64),
    )):  # fmt: skip
        for code in FORMATS:
            half, in_blocks = i % 2 == 1, bool(size) and i % 3 == 1
            blocks = -(-k // size) if size else 1
            w = codes_of(code, n, k, seed=i)
            w_scale = (np.abs(normal(n, blocks, seed=i)) * 0.01).astype("f2" if half else "f4")
            w_zero = codes_of(code, n, blocks, seed=(i, "zero")) if i % 4 != 2 else None
            x = codes_of(FORMATS[i % 2], m, k, seed=i)
            x_scale = np.abs(normal(m, blocks if in_blocks else 1, seed=1)) * np.float32(0.02)
            x_zero = codes_of(FORMATS[i % 2], *x_scale.shape, seed=2) if i % 3 else None
            bias = normal(n, seed=3) if i % 2 else None
            zeros = None if w_zero is None else code_panels(w_zero, code)
            operands = (x, x_scale, code_quads(w, code), pack_panels(w_scale), zeros, x_zero, bias)
            number = FORMATS.index(code)
            yield Case(
                f"quantized-linear-{m}x{k}x{n}-{size}-{code}",
                "quantized_linear",
                operands,
                (n, number, number, size),
                scaled(x, x_scale, x_zero, w, w_scale, w_zero, bias, size, in_blocks),
                frozenset({2, 3, 4}),
                rtol=0,
                atol=0,
            )


def scaled(
    x: Array, x_scale: Array, x_zero: Array | None, w: Array, w_scale: Array,
    w_zero: Array | None, bias: Array | None, size: int, in_blocks: bool,
) -> Array:  # fmt: skip
    (m, k), n = x.shape, len(w)
    y = np.zeros((m, n))
    for block, start in enumerate(range(0, k, size or k or 1)):
        at = slice(start, start + (size or k))
        left, right = x[:, at].astype(np.int64), w[:, at].astype(np.int64)
        if x_zero is not None:
            left = left - x_zero[:, [block if in_blocks else 0]]
        if w_zero is not None:
            right = right - w_zero[:, [block]]
        part = (left @ right.T).astype(np.float64) * w_scale[:, block].astype(np.float64)
        y = y + (part * x_scale[:, [block]].astype(np.float64) if in_blocks else part)
    y = y if in_blocks else y * x_scale.astype(np.float64)
    return f32(y if bias is None else y + bias.astype(np.float64))


def one_number_for_all() -> Iterator[Case]:
    """Scales and zero points that are scalars."""
    x, w = codes_of("ui8", 2, 3, 50), codes_of("i8", 21, 50)
    wide = (x.astype(np.int64) - 7) @ (w.astype(np.int64) + 3).T
    y = f32(wide.astype(np.float64) * np.float64(np.float32(0.3)) * np.float64(np.float32(0.7)))
    sides = (np.float32(0.7), code_quads(w, "i8"), np.float32(0.3), np.int8(-3), np.uint8(7))
    operands = (x, *map(np.asarray, sides))
    yield Case("quantized-linear-scalars", "quantized_linear", operands, (21, 0, 0, 0), y,
               frozenset({2}), rtol=0, atol=0)  # fmt: skip


def extremes() -> Iterator[Case]:
    """The largest products that there are: sums of pairs of them leave 16 bits."""
    for kind in ("i8", "ui8"):
        for code in FORMATS:
            for at, (left, right) in enumerate(((0, 0), (0, 1), (1, 1))):
                low, high = limits(kind)
                x = np.full((5, 333), (low, high - 1)[left], np.uint8 if low == 0 else np.int8)
                low, high = limits(code)
                w = np.full((18, 333), (low, high - 1)[right], np.uint8 if low == 0 else np.int8)
                y = f32(x.astype(np.int64) @ w.astype(np.int64).T)
                sides = np.asarray(np.float32(1)), code_quads(w, code), np.asarray(np.float32(1))
                number = FORMATS.index(code)
                yield Case(f"quantized-linear-extreme-{kind}-{code}-{at}", "quantized_linear",
                           (x, *sides), (18, number, number, 0), y, frozenset({2}),
                           rtol=0, atol=0)  # fmt: skip


def dequantised() -> Iterator[Case]:
    """A product of reals, and rows: the weight's reals are exact in single precision."""
    for i, (m, k, n, size, activation) in enumerate((
        (1, 64, 47, 32, 0), (1, 600, 32, 128, 4), (3, 33, 5, 16, 1), (14, 70, 33, 0, 2),
        (100, 520, 64, 64, 0), (0, 8, 8, 0, 0), (2, 5, 1, 2, 3),
    )):  # fmt: skip
        for code in FORMATS:
            blocks = -(-k // size) if size else 1
            w, number = codes_of(code, n, k, seed=i), FORMATS.index(code)
            scale = (np.abs(normal(n, blocks, seed=i)) * 0.05).astype("f2" if i % 2 else "f4")
            zero = codes_of(code, n, blocks, seed=(i, "zero")) if i % 3 else None
            wide = w.astype(np.int64) - (0 if zero is None else spread(zero, k, size))
            reals = f32(wide) * f32(spread(scale, k, size))
            coded = (code_quads(w, code), pack_panels(scale),
                     None if zero is None else code_panels(zero, code))  # fmt: skip
            x, bias = normal(m, k, seed=i), normal(n, seed=2) if i % 2 else None
            y = x.astype(np.float64) @ reals.astype(np.float64).T
            yield Case(
                f"dequantized-linear-{m}x{k}x{n}-{size}-{code}",
                "f32_dequantized_linear",
                (x, *coded, bias),
                (n, number, number, size, activation),
                f32(ACTIVATIONS[activation](y if bias is None else y + bias)),
                frozenset({1, 2, 3}),
                atol=2e-6 * max(1.0, float(np.sqrt(k))) * float(np.abs(reals).max(initial=1)),
            )
            ids = rng(i).integers(-n, n, (2, 3))
            yield Case(f"dequantized-embedding-{k}x{n}-{size}-{code}", "f32_dequantized_embedding",
                       (ids, *coded), (n, number, number, size), reals[ids], frozenset({1, 2, 3}),
                       rtol=0, atol=0)  # fmt: skip


def quantize() -> Iterator[Case]:
    """Codes of given scales and back: a tensor, an axis, blocks, one of which is cut short."""
    for dtype, code in (("i1", "i8"), ("u1", "ui8"), ("i2", "i16"), ("u2", "ui16")):
        low, high = limits(code)
        for shape, side, axis, size in (
            ((7, 50), (), -1, 0), ((2, 3, 9000), (1, 1), -1, 0), ((5, 33), (5, 1), -1, 0),
            ((5, 33), (33,), -1, 0), ((4, 50), (4, 4), 1, 16), ((6, 50), (2, 50), 0, 4),
            ((2, 6, 5), (2, 2, 1), 1, 3), ((0, 4), (4,), -1, 0), ((), (), -1, 0),
        ):  # fmt: skip
            x, scale = normal(*shape) * 9, f32(np.abs(normal(*side, seed=1)) * 0.1 + 0.01)
            if x.size > 40:
                x.reshape(-1)[:4] = (np.inf, -np.inf, np.nan, scale.reshape(-1)[0] * 0.5)
            for zero in (None, rng(dtype).integers(low, high, side).astype(dtype)):
                wide = [None if p is None else repeated(np.asarray(p), x.shape, axis, size)
                        for p in (scale, zero)]  # fmt: skip
                assert wide[0] is not None
                with np.errstate(all="ignore"):
                    codes = np.rint(x / wide[0]).astype(np.float64)
                codes = codes if wide[1] is None else codes + wide[1]
                codes = np.nan_to_num(codes.clip(low, high - 1)).astype(dtype)
                name = f"{dtype}-{shape}-{side}-{axis}-{zero is not None}"
                operands = (x, scale, None if zero is None else np.asarray(zero))
                yield exact(f"quantize-{name}", "quantize", operands, (axis, size), codes)  # type: ignore[arg-type]
                back = codes.astype(np.int64) - (0 if wide[1] is None else wide[1])
                operands = (codes, *operands[1:])
                yield exact(f"dequantize-{name}", "dequantize", operands, (axis, size),
                            f32(back) * wide[0])  # type: ignore[arg-type]  # fmt: skip
    sums, scale = rng("sums").integers(-(1 << 31), 1 << 31, (4, 9)).astype("i4"), normal(9)
    yield exact("dequantize-sums", "dequantize", (sums, scale), (-1, 0), f32(sums) * scale)


def repeated(parameter: Array, shape: tuple[int, ...], axis: int, size: int) -> Array:
    if parameter.ndim and axis >= 0:
        parameter = np.repeat(parameter, size, axis).take(np.arange(shape[axis]), axis)
    return np.broadcast_to(parameter, shape)


@dataclass(frozen=True)
class DynamicCase(Case):
    """One of the results is the output; the others lie in the arena."""

    results: tuple[tuple[str, tuple[int, ...]], ...] = ()
    which: int = 0

    def program(self) -> tuple[bytes, bytes]:
        writer = ProgramWriter()
        (x,) = self.operands
        assert x is not None
        source = writer.io("in0", dtype_of(x), x.shape)
        ids = [
            writer.io("y", *result) if at == self.which else writer.arena_tensor("other", *result)
            for at, result in enumerate(self.results)
        ]
        writer.stage(self.kernel, [source], ids, self.params)
        writer.entry("main", inputs=[source], outputs=[ids[self.which]])
        return writer.finish()


def dynamic() -> Iterator[Case]:
    """Scales of the data, in single precision: of a tensor, a line, a block of one."""
    for shape, axis, size in (
        ((5, 33), -1, 0), ((2, 3, 40), 2, 0), ((2, 40, 3), 1, 0), ((3, 70), 1, 32), ((7, 3), 0, 2),
        ((0, 4), 1, 0), ((1, 9000), 1, 0), ((), -1, 0), ((67, 67), 1, 0),
    ):  # fmt: skip
        for dtype, symmetric in (("i1", True), ("i1", False), ("u1", False), ("i2", True)):
            x = normal(*shape) * 5
            if x.size > 40:
                x.reshape(-1, 1)[:3] = 0
                x.reshape(-1)[-1] = np.nan if symmetric and axis == 2 else 0
            if shape == (67, 67):  # the extremes of a line at each of its places
                np.fill_diagonal(x, 90)
                np.fill_diagonal(x[:, 1:], -80)
            found = by_data(x, dtype, symmetric, axis, size)
            name = f"dynamic-quantize-{dtype}-{symmetric:d}-{shape}-{axis}-{size}"
            results = tuple((dtype_of(r), r.shape) for r in found)
            for which, expected in enumerate(found):
                yield DynamicCase(
                    f"{name}-{which}", "dynamic_quantize", (x,), (axis, size), expected,
                    rtol=0, atol=0, results=results, which=which,
                )  # fmt: skip


def by_data(x: Array, dtype: str, symmetric: bool, axis: int, size: int) -> list[Array]:
    """Line by line, block by block."""
    info, one = np.iinfo(dtype), np.float32(1)
    turned = x.reshape(1, -1) if axis < 0 else np.moveaxis(x, axis, -1)
    lines = turned.reshape(-1, turned.shape[-1])
    step = size or max(lines.shape[1], 1)
    blocks = max(-(-lines.shape[1] // step), 1)
    codes = np.zeros(lines.shape, dtype)
    scale, zero = np.ones((len(lines), blocks), np.float32), np.zeros((len(lines), blocks), dtype)
    for r, b in np.ndindex(len(lines), blocks):
        part = lines[r, b * step : (b + 1) * step]
        low, high = (f(part, initial=np.float32(0)) for f in (np.min, np.max))
        spread = np.maximum(high, -low) if symmetric else high - low
        s = spread / np.float32(info.max if symmetric else info.max - info.min)
        s = one if s == 0 else s
        with np.errstate(all="ignore"):
            point = np.rint(np.clip(np.float32(info.min) - low / s, info.min, info.max))
            z = 0 if symmetric else int(np.nan_to_num(point))
            made = np.rint(part / s).astype(np.float64) + z
        codes[r, b * step : (b + 1) * step] = np.nan_to_num(made.clip(info.min, info.max))
        scale[r, b], zero[r, b] = s, z
    if axis < 0:
        sides = [v.reshape(()) for v in (scale, zero)]
        found = [codes.reshape(x.shape), *sides]
    else:
        leading = turned.shape[:-1]
        found = [np.moveaxis(codes.reshape(turned.shape), -1, axis)]
        found += [np.moveaxis(v.reshape(*leading, blocks), -1, axis) for v in (scale, zero)]
    return [np.asarray(v, order="C") for v in found[: 2 if symmetric else 3]]


def unpack() -> Iterator[Case]:
    for number, code in enumerate(FORMATS):
        for shape in ((3, 5), (16,), (0,), (2, 3, 7)):
            codes = codes_of(code, *shape)
            bytes_ = shared(codes.reshape(-1), code)
            bytes_ = bytes_.view(np.uint8)
            yield exact(f"unpack-{code}-{shape}", "unpack", (bytes_,), (number,), codes)


def integer_matmul() -> Iterator[Case]:
    for i, (a_shape, b_shape) in enumerate((
        ((3, 4), (4, 5)), ((1, 300), (300, 1)), ((14, 1100), (1100, 130)), ((2, 3, 7, 9), (9, 33)),
        ((2, 1, 5, 6), (3, 6, 20)), ((4, 0), (0, 3)), ((0, 4), (4, 3)),
    )):  # fmt: skip
        for a_code, b_code in (("ui8", "i8"), ("i8", "i8"), ("i8", "ui8")):
            a, b = codes_of(a_code, *a_shape, seed=i), codes_of(b_code, *b_shape, seed=i)
            zeros: list[Array | None] = [
                codes_of(a_code, *a_shape[:-1], 1, seed=1),
                codes_of(b_code, *b_shape[:-2], 1, b_shape[-1], seed=2),
            ]
            if i % 2:
                zeros = [np.asarray(codes_of(a_code, 1)[0]), None]
            wide = [x.astype(np.int64) - (0 if z is None else z.astype(np.int64))
                    for x, z in zip((a, b), zeros, strict=True)]  # fmt: skip
            name = f"integer-matmul-{a_code}-{b_code}-{a_shape}-{b_shape}"
            yield exact(name, "integer_matmul", (a, b, *zeros), (),
                        (wide[0] @ wide[1]).astype(np.int32))  # type: ignore[arg-type]  # fmt: skip


def integer_conv() -> Iterator[Case]:
    for i, (shape, weight, strides, pads, dilations, groups) in enumerate((
        ((1, 3, 7, 9), (4, 3, 3, 2), [2, 1], [1, 0, 1, 1], [1, 1], 1),
        ((2, 4, 11), (6, 2, 3), [1], [2, 1], [2], 2),
        ((1, 5, 6, 6), (5, 1, 3, 3), [1, 1], [1, 1, 1, 1], [1, 1], 5),
        ((1, 2, 4, 5, 6), (3, 2, 2, 2, 2), [2, 2, 2], [0] * 6, [1, 1, 1], 1),
    )):  # fmt: skip
        for x_code, w_code in (("ui8", "i8"), ("i8", "ui8")):
            x, w = codes_of(x_code, *shape, seed=i), codes_of(w_code, *weight, seed=i)
            x_zero = np.asarray(codes_of(x_code, 3, seed=1)[1])
            w_zero = codes_of(w_code, weight[0], seed=2) if i % 2 else None
            left = x.astype(np.int64) - int(x_zero)
            column = (weight[0], *[1] * (len(weight) - 1))
            right = w.astype(np.int64) - (0 if w_zero is None else w_zero.reshape(column))
            y = convolved(left, right, strides, pads, dilations, groups)
            yield exact(f"integer-conv-{x_code}-{w_code}-{i}", "integer_conv",
                        (x, w, x_zero, w_zero), (strides, pads, dilations, groups),
                        y.astype(np.int32))  # type: ignore[arg-type]  # fmt: skip


def convolved(
    x: Array, w: Array, strides: list[int], pads: list[int], dilations: list[int], groups: int
) -> Array:
    """Tap by tap."""
    n, kernel = len(strides), w.shape[2:]
    padded = np.pad(x, [(0, 0), (0, 0), *((pads[a], pads[n + a]) for a in range(n))])
    out = [(padded.shape[2 + a] - dilations[a] * (kernel[a] - 1) - 1) // strides[a] + 1
           for a in range(n)]  # fmt: skip
    y = np.zeros((len(x), len(w), *out), np.int64)
    channels, filters = w.shape[1], len(w) // groups
    for f, c, *tap in np.ndindex(len(w), channels, *kernel):
        at = tuple(slice(t * d, t * d + (o - 1) * s + 1, s)
                   for t, d, o, s in zip(tap, dilations, out, strides, strict=True))  # fmt: skip
        y[:, f] += w[(f, c, *tap)] * padded[(slice(None), f // filters * channels + c, *at)]
    return y


MAKERS = (
    *(quantised, extremes, one_number_for_all, dequantised, quantize),
    *(dynamic, unpack, integer_matmul, integer_conv),
)
